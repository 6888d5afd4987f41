//! Building chains, and the changes of rows that refer to them.

use crate::chain_record::{ChainBegin, ChainPageImage};
use crate::format::{CHAIN_BYTES, CHAIN_DATA, CHAIN_IDS, CHAIN_INDEX, CHAIN_ROOT, ChainId, DIRECT, LEAF_HEADER, SLOT};
use crate::format::{OVERFLOW, RowHeader, Stub};
use crate::intent::{Done, Intent, Store};
use crate::record::{RowChange, RowInsert, RowRestore, TreeKind};
use crate::row::Stored;
use crate::sound::assert_fits;
use crate::split::NewPage;
use crate::tree::{Structure, Tree, Trees, record};
use foreshore_base::limits::MAX_INLINE_VALUE;
use foreshore_base::{Error, Lsn, PageId, Result, Xid, crc32c_append};
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_lock::LockWait;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_txn::Txn;
use foreshore_wal::Dep;

/// Key and value of a row of the table of chains.
const ROW: usize = 8 + 8;
/// Largest body of the record that begins a chain, without the data.
const MAX_BEGIN_FRONT: usize = 64 + 2 * ROW + ChainPageImage::FRONT;

/// A chain that is being built. It is discarded, or a row refers to it; otherwise it is freed after its transaction.
pub(crate) struct ChainWriter<'t> {
    tree: &'t Tree,
    birth: Xid,
    /// All pages lie before this one, if there is one.
    limit: Option<PageId>,
    head: Option<PageId>,
    /// The index page that the next data page comes below; `None` if that is the root.
    index: Option<PageId>,
    /// Data pages written.
    pages: usize,
    /// Bytes that are in no page yet.
    rest: Vec<u8>,
    len: u64,
    crc: u32,
    /// LSN of its last record.
    last: Lsn,
}

impl<'t> ChainWriter<'t> {
    /// Makes a chain for a row of `tree`. The transaction holds an intent to write the table.
    pub(crate) fn new(tree: &'t Tree, txn: &mut Txn) -> Result<Self> {
        let birth = txn.ensure_xid()?;
        let limit = None;
        Ok(Self {
            tree,
            birth,
            limit,
            head: None,
            index: None,
            pages: 0,
            rest: Vec::new(),
            len: 0,
            crc: 0,
            last: Lsn::ZERO,
        })
    }

    /// Makes a chain as [`new`](Self::new) does, whose pages all lie before `limit`. The file does not grow for it.
    pub(super) fn below(tree: &'t Tree, txn: &mut Txn, limit: PageId) -> Result<Self> {
        Ok(Self { limit: Some(limit), ..Self::new(tree, txn)? })
    }

    /// Takes a new page; `None` if there is none before the limit.
    fn take_page(&self, structure: &mut Structure<'_>) -> Result<Option<NewPage<'t>>> {
        let trees = self.tree.trees();
        match self.limit {
            Some(limit) => NewPage::take_below(trees, structure, limit),
            None => NewPage::take(trees, structure).map(Some),
        }
    }

    /// Returns the error for a chain that finds no page before its limit.
    fn no_page(&self) -> Error {
        self.tree.trees().space().no_page()
    }

    /// Appends bytes of the value.
    pub(crate) fn write(&mut self, txn: &mut Txn, mut bytes: &[u8]) -> Result<()> {
        self.tree.check_large(self.len + bytes.len() as u64)?;
        self.len += bytes.len() as u64;
        self.crc = crc32c_append(self.crc, bytes);
        // A page is written when it is known that another byte follows: a value of one page has no index.
        while self.rest.len() + bytes.len() > CHAIN_BYTES {
            if self.rest.is_empty() {
                let (page, more) = bytes.split_at(CHAIN_BYTES);
                self.add_page(txn, page)?;
                bytes = more;
                continue;
            }
            let (part, more) = bytes.split_at(CHAIN_BYTES - self.rest.len());
            self.rest.extend_from_slice(part);
            let page = std::mem::take(&mut self.rest);
            self.add_page(txn, &page)?;
            self.rest = page;
            self.rest.clear();
            bytes = more;
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the rest. Returns what the row holds, and what its change depends on.
    pub(crate) fn finish(&mut self, txn: &mut Txn) -> Result<(Stub, Dep)> {
        let rest = std::mem::take(&mut self.rest);
        assert!(!rest.is_empty() && rest.len() <= CHAIN_BYTES, "the last page of a value has {} bytes", rest.len());
        match self.head {
            None => self.begin(txn, CHAIN_DATA, &rest)?,
            Some(_) => self.add_page(txn, &rest)?,
        }
        let head = self.head.expect("it has a page");
        let pages = self.len.div_ceil(CHAIN_BYTES as u64);
        assert_eq!(self.pages.max(1) as u64, pages, "pages of a value of {} bytes", self.len);
        self.tree.trees().counters().chains_built.add(1);
        let stub = Stub { chain: ChainId { head, birth: self.birth }, len: self.len, crc: self.crc };
        Ok((stub, Dep::none().page(self.last)))
    }

    /// Returns the number of bytes so far.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the checksum of the bytes so far.
    pub(super) const fn crc(&self) -> u32 {
        self.crc
    }

    /// Returns the value, if it is small enough for its row.
    pub(crate) fn small(&self) -> Option<&[u8]> {
        if self.head.is_some() {
            return None;
        }
        assert_eq!(self.rest.len() as u64, self.len, "bytes of a value that has no page");
        (self.rest.len() <= MAX_INLINE_VALUE).then_some(&*self.rest)
    }

    /// Frees its pages, and forgets what it was given. If that fails they are freed after the transaction.
    pub(crate) fn discard(&mut self, txn: &mut Txn) {
        self.rest = Vec::new();
        if let Some(head) = self.head.take() {
            let chain = ChainId { head, birth: self.birth };
            // The caller returns the error that made the chain useless.
            let _ = self.tree.trees().free_own(txn, chain);
        }
    }

    fn chain(&self) -> ChainId {
        ChainId { head: self.head.expect("the chain has begun"), birth: self.birth }
    }

    /// Writes the next data page of a chain of several.
    fn add_page(&mut self, txn: &mut Txn, data: &[u8]) -> Result<()> {
        if self.head.is_none() {
            self.begin(txn, CHAIN_ROOT, &[])?;
        }
        assert!(!data.is_empty() && data.len() <= CHAIN_BYTES, "a page of a value has {} bytes", data.len());
        let head = self.chain().head;
        if self.pages >= DIRECT && (self.pages - DIRECT).is_multiple_of(CHAIN_IDS) {
            self.index = Some(self.extend(txn, head, CHAIN_INDEX, &[])?);
        }
        self.extend(txn, self.index.unwrap_or(head), CHAIN_DATA, data)?;
        self.pages += 1;
        Ok(())
    }

    fn image<'d>(&self, head: PageId, level: u8, data: &'d [u8]) -> ChainPageImage<'d> {
        let place = u32::try_from(self.pages).expect("a value has fewer pages");
        ChainPageImage { chain: ChainId { head, birth: self.birth }, place, level, data }
    }

    /// Adds a page below `parent`.
    fn extend(&mut self, txn: &mut Txn, parent: PageId, level: u8, data: &[u8]) -> Result<PageId> {
        let (trees, table) = (self.tree.trees(), self.tree.table());
        assert_eq!(level == CHAIN_DATA, !data.is_empty(), "the content of a page of a value, on level {level}");
        let image = self.image(self.chain().head, level, data);
        let mut body = Vec::with_capacity(ChainPageImage::FRONT + data.len());
        image.encode_front(&mut body);
        body.extend_from_slice(data);
        let pages = txn.with_space(|txn| {
            let structure = &mut Structure::of(txn);
            let Some(new) = self.take_page(structure)? else { return Ok(None) };
            let parent = trees.pool().pin(parent)?;
            structure.reserve(change_cost(3, body.len()))?;
            Ok(Some((new, parent)))
        });
        let (mut new, parent) = pages?.ok_or_else(|| self.no_page())?;
        {
            let (mut parent, mut page, mut map) = (parent.exclusive(), new.page.exclusive(), new.map.exclusive());
            let pages = [parent.pid(), page.pid(), map.pid()];
            let record = record(TreeKind::ChainExtend, 0, 0b010, table, &pages, &body);
            let pages = &mut [&mut parent, &mut page, &mut map];
            Structure::of(txn).apply(trees, &record, pages, Dep::none().page(self.last))?;
            assert!(self.last < page.lsn(), "a chain grows at {} after its record at {}", page.lsn(), self.last);
            self.last = page.lsn();
        }
        new.linked();
        pause::point("btree: a page of a large value is linked");
        Ok(new.page.pid())
    }

    /// Allocates the first page, and inserts the row of the chain.
    fn begin(&mut self, txn: &mut Txn, level: u8, data: &[u8]) -> Result<()> {
        assert_eq!(self.head, None, "a chain begins once");
        let trees = self.tree.trees();
        let chains = trees.chains();
        let cost = change_cost(3, MAX_BEGIN_FRONT + data.len());
        let new = txn.with_space(|txn| self.take_page(&mut Structure::of(txn)))?;
        let mut new = new.ok_or_else(|| self.no_page())?;
        let chain = ChainId { head: new.page.pid(), birth: self.birth };
        let (key, value) = (chain.key(), chain.value());
        loop {
            let mut leaf: ExclusiveGuard<'_> =
                txn.with_space(|txn| chains.find(&mut Structure::of(txn), &key, 0, cost))?;
            let pid = leaf.pid();
            let damage = |why| chains.corrupted(pid, why);
            let node = chains.parse(pid, &leaf)?;
            let owner = RowHeader::default().owner();
            let mut row = Vec::with_capacity(MAX_BEGIN_FRONT);
            let (kind, need) = match node.search(&key).map_err(damage)? {
                Err(_) => {
                    RowInsert { root: chains.root(), owner, key: &key, value: &value }.encode(&mut row);
                    (TreeKind::RowInsert, SLOT + LEAF_HEADER + ROW)
                }
                Ok(at) => {
                    let ghost = node.row(at).map_err(damage)?;
                    if !ghost.header.is_ghost() || !is_over(txn, ghost.header.xid) {
                        return Err(damage("a page of a large value is allocated twice"));
                    }
                    let cut = ghost.value.len();
                    RowRestore { owner, key: &key, prefix: 0, cut, middle: &value }.encode(&mut row);
                    (TreeKind::RowRestore, value.len().saturating_sub(cut))
                }
            };
            if need > node.free() {
                drop(leaf);
                txn.with_space(|txn| chains.make_room(&mut Structure::of(txn), &key, 0, need))?;
                continue;
            }
            let mut body = Vec::with_capacity(MAX_BEGIN_FRONT + data.len());
            let (row, page) = (RowChange { kind, body: &row }, self.image(chain.head, level, data));
            ChainBegin { table: self.tree.table(), row, page }.encode_front(&mut body);
            assert_fits(&body, MAX_BEGIN_FRONT, "the begin of a chain");
            body.extend_from_slice(data);
            let (mut page, mut map) = (new.page.exclusive(), new.map.exclusive());
            let pages = [pid, page.pid(), map.pid()];
            let record = record(TreeKind::ChainBegin, 0, 0b010, chains.table(), &pages, &body);
            let pages = &mut [&mut leaf, &mut page, &mut map];
            Structure::of(txn).apply(trees, &record, pages, Dep::none())?;
            self.last = page.lsn();
            break;
        }
        new.linked();
        self.head = Some(chain.head);
        // After the record: a pass that was noted earlier may not have met the row.
        trees.note_chain();
        pause::point("btree: a chain has begun");
        Ok(())
    }
}

/// Returns whether the writer of a ghost in the table of chains is settled, or there is none. The ghost of a chain that
/// was freed with its dropped table has the transaction that adopted the chain, which ended before the drop.
fn is_over(txn: &mut Txn, writer: Xid) -> bool {
    writer == Xid::ZERO || txn.is_settled(writer) || {
        // A snapshot that an older view counts may have ended.
        txn.refresh_view();
        txn.is_settled(writer)
    }
}

impl Tree {
    /// Writes a large value, and returns what it has found; `old` gets what the row held. After an error the
    /// transaction has to be rolled back.
    ///
    /// The row is locked first, so that a write that is refused builds no chain. It changes last, so that an undo
    /// restores it first (see [`super`]).
    pub(crate) fn write_large(
        &self,
        txn: &mut Txn,
        key: &[u8],
        store: Store,
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<Done> {
        self.check_key(key)?;
        self.check_large(value.len() as u64)?;
        let intent = store.of(Stored::value(&[]));
        // A missing row gets no lock if the write inserts it: two writers that share its key would block each other.
        let lock = if intent.new_row().is_some() { Intent::Take } else { Intent::Lock };
        let found = self.write_by(txn, (key, lock), LockWait::Wait, old)?;
        if !intent.writes(found.is_row()) {
            return Ok(found);
        }
        let (stub, dep) = self.build_chain(txn, value)?;
        let bytes = stub.encode();
        let stored = Stored { bytes: &bytes, flags: OVERFLOW, dep };
        let is_late = mutant("sabotage: a row has a large value before that is adopted");
        if !is_late {
            self.adopt(txn, stub.chain)?;
        }
        let done = self.refer(txn, key, (intent, found), (stub.chain, stored), old)?;
        if is_late {
            self.adopt(txn, stub.chain)?;
        }
        Ok(done)
    }

    /// Changes a row so that it refers to a chain that the transaction has adopted. The row was locked as `found`.
    fn refer(
        &self,
        txn: &mut Txn,
        key: &[u8],
        (intent, found): (Intent<'_>, Done),
        (chain, stored): (ChainId, Stored<'_>),
        old: &mut Vec<u8>,
    ) -> Result<Done> {
        if !found.is_row() {
            let found = self.write_by(txn, (key, Intent::Insert(stored)), LockWait::Wait, old)?;
            if !found.is_row() {
                return Ok(found);
            }
            // Another transaction has inserted the row meanwhile, and it is locked now.
            if !intent.writes(true) {
                return self.retire_chain(txn, chain).map(|()| found);
            }
        }
        self.write_by(txn, (key, Intent::Update(stored)), LockWait::Wait, old)
    }

    /// Builds the chain of a value.
    pub(crate) fn build_chain(&self, txn: &mut Txn, value: &[u8]) -> Result<(Stub, Dep)> {
        let mut chain = ChainWriter::new(self, txn)?;
        let built = match chain.write(txn, value) {
            Ok(()) => chain.finish(txn),
            Err(error) => Err(error),
        };
        if built.is_err() {
            chain.discard(txn);
        }
        built
    }

    /// Deletes the row of a chain that a row is about to refer to.
    pub(crate) fn adopt(&self, txn: &mut Txn, chain: ChainId) -> Result<()> {
        let chains = self.trees().chains();
        if chains.remove_only(txn, &chain.key(), &mut Vec::new())? {
            return Ok(());
        }
        Err(chains.corrupted(chain.head, "a large value is not among the chains that are being built"))
    }

    /// Inserts the row of a chain whose reference the transaction is about to remove.
    pub(crate) fn retire_chain(&self, txn: &mut Txn, chain: ChainId) -> Result<()> {
        if mutant("sabotage: a replaced large value is not retired") {
            return Ok(());
        }
        let chains = self.trees().chains();
        let retired = chains.insert_dropped(txn, &chain.key(), &chain.value());
        self.trees().note_chain();
        match retired {
            Err(Error::KeyExists { .. }) => Err(chains.corrupted(chain.head, "a large value is replaced twice")),
            retired => retired,
        }
    }
}

const _: () = assert!(MAX_INLINE_VALUE < CHAIN_BYTES);

impl Trees {
    /// Notes that a chain may have to be freed.
    pub(crate) fn note_chain(&self) {
        self.claims().note();
        self.space_signal().notify();
    }
}
