//! The files of backups.
//!
//! ```text
//!  token    0 magic u64 | 8 crc32c u32 | 12 version u32 | 16 uuid [u8; 16] | 32 token [u8; 16] | 48 base [u8; 16]
//!           64 start u64 | 72 end u64 | 80 pages u64 | 88 stored u64 | zeros to 4096
//!  backups  0 magic u64 | 8 crc32c u32 | 12 version u32 | 16 uuid [u8; 16] | 32 count u32 | 36 zero u32
//!           40 count x { token [u8; 16] | run [u8; 16] | start u64 | end u64 } | zeros to 4096
//!  pack    0 magic u64 | 8 crc32c u32 | 12 count u32   | 16 token [u8; 16] | 32 number u64
//!           40 count x { page id u64 | crc of the page u32 | zero u32 } | zeros to 4096 | count pages
//! ```
//!
//! The checksums cover bytes 12..4096 of their block. `token` names a backup, `backups` lists those of a database, and
//! packs fill the file `increment` behind its superblock slots. The checksum of a pack covers the token and the
//! checksums of its pages, so packs of two increments do not mix.

use foreshore_base::codec::{Decoder, Put, Short, u32_at, u64_at};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Lsn, PageId, Uuid, crc32c};

/// Version of `token` and `backups` that this build writes and the newest that it reads.
pub(crate) const BACKUP_VERSION: u32 = 1;
/// Most backups that a database knows.
pub(crate) const MAX_KNOWN: usize = 16;
/// Pages of a pack that is full: all but the last are.
pub(crate) const PACK_PAGES: usize = 128;
/// Byte offset of the first pack, behind the superblock slots.
pub(crate) const FIRST_PACK: u64 = 2 * PAGE_SIZE as u64;

const TOKEN_MAGIC: u64 = u64::from_le_bytes(*b"FSHORBKT");
const KNOWN_MAGIC: u64 = u64::from_le_bytes(*b"FSHORBKL");
const PACK_MAGIC: u64 = u64::from_le_bytes(*b"FSHORBKP");
const AT_CRC: usize = 8;
const AT_VERSION: usize = 12;
const PACK_HEADER: usize = 40;
const PACK_ENTRY: usize = 16;

const _: () = assert!(40 + MAX_KNOWN * 48 <= BLOCK && PACK_HEADER + PACK_PAGES * PACK_ENTRY <= BLOCK);

/// The name of a finished backup: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) [u8; 16]);

/// Why a block is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockFlaw {
    /// Another magic, a wrong checksum, or contents that no writer comes to.
    Damaged,
    /// A version of a newer build.
    Newer(u32),
}

impl From<Short> for BlockFlaw {
    fn from(_: Short) -> Self {
        Self::Damaged
    }
}

fn seal(mut bytes: Vec<u8>, block: &mut [u8]) {
    assert!(bytes.len() <= BLOCK, "{} bytes of a block", bytes.len());
    bytes.resize(BLOCK, 0);
    let crc = crc32c(&bytes[AT_CRC + 4..]);
    bytes[AT_CRC..AT_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    block[..BLOCK].copy_from_slice(&bytes);
}

/// Returns what follows the checksum of a sound block.
fn open(block: &[u8], magic: u64) -> Result<Decoder<'_>, BlockFlaw> {
    if block.len() < BLOCK || u64_at(block, 0) != magic || u32_at(block, AT_CRC) != crc32c(&block[AT_CRC + 4..BLOCK]) {
        return Err(BlockFlaw::Damaged);
    }
    Ok(Decoder::new(&block[AT_VERSION..BLOCK]))
}

fn open_file(block: &[u8], magic: u64) -> Result<Decoder<'_>, BlockFlaw> {
    let mut from = open(block, magic)?;
    match from.u32()? {
        BACKUP_VERSION => Ok(from),
        newer if newer > BACKUP_VERSION => Err(BlockFlaw::Newer(newer)),
        _ => Err(BlockFlaw::Damaged),
    }
}

/// What a backup says of itself, in its file `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupHeader {
    /// Of the database.
    pub(crate) uuid: Uuid,
    pub(crate) token: Token,
    /// The backup that an increment continues.
    pub(crate) base: Option<Token>,
    /// The pages of the backup, with those of its base, have all their records with LSNs up to here.
    pub(crate) start: Lsn,
    /// The end of its log.
    pub(crate) end: Lsn,
    /// Length of the data file in pages.
    pub(crate) pages: u64,
    /// Pages with contents that it has itself.
    pub(crate) stored: u64,
}

impl BackupHeader {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        let mut bytes = Vec::with_capacity(BLOCK);
        bytes.put_u64(TOKEN_MAGIC);
        bytes.put_u32(0);
        bytes.put_u32(BACKUP_VERSION);
        bytes.put(&self.uuid.0);
        bytes.put(&self.token.0);
        bytes.put(&self.base.map_or([0; 16], |base| base.0));
        bytes.put_u64(self.start.0);
        bytes.put_u64(self.end.0);
        bytes.put_u64(self.pages);
        bytes.put_u64(self.stored);
        seal(bytes, block);
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, BlockFlaw> {
        let mut from = open_file(block, TOKEN_MAGIC)?;
        let (uuid, token, base) = (Uuid(from.array()?), Token(from.array()?), from.array()?);
        Ok(Self {
            uuid,
            token,
            base: (base != [0; 16]).then_some(Token(base)),
            start: Lsn(from.u64()?),
            end: Lsn(from.u64()?),
            pages: from.u64()?,
            stored: from.u64()?,
        })
    }
}

/// A backup that the database remembers, so that an increment may continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBackup {
    pub(crate) token: Token,
    /// The run that the newest superblock named then.
    pub(crate) run: [u8; 16],
    /// As in its header.
    pub(crate) start: Lsn,
    /// As in its header.
    pub(crate) end: Lsn,
}

/// Fills the block of `backups`, of at most [`MAX_KNOWN`] entries.
pub(crate) fn encode_known(block: &mut [u8], uuid: Uuid, known: &[KnownBackup]) {
    assert!(known.len() <= MAX_KNOWN, "a list of {} backups", known.len());
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.put_u64(KNOWN_MAGIC);
    bytes.put_u32(0);
    bytes.put_u32(BACKUP_VERSION);
    bytes.put(&uuid.0);
    bytes.put_u32(known.len() as u32);
    bytes.put_u32(0);
    for backup in known {
        bytes.put(&backup.token.0);
        bytes.put(&backup.run);
        bytes.put_u64(backup.start.0);
        bytes.put_u64(backup.end.0);
    }
    seal(bytes, block);
}

/// Reads the block of `backups`: its database, and the list.
pub(crate) fn decode_known(block: &[u8]) -> Result<(Uuid, Vec<KnownBackup>), BlockFlaw> {
    let mut from = open_file(block, KNOWN_MAGIC)?;
    let (uuid, count) = (Uuid(from.array()?), from.u32()? as usize);
    from.u32()?;
    if count > MAX_KNOWN {
        return Err(BlockFlaw::Damaged);
    }
    let mut entry = || {
        let (token, run) = (Token(from.array()?), from.array()?);
        Ok(KnownBackup { token, run, start: Lsn(from.u64()?), end: Lsn(from.u64()?) })
    };
    Ok((uuid, (0..count).map(|_| entry()).collect::<Result<_, BlockFlaw>>()?))
}

/// Fills the header of a pack: the ids of its pages, and their checksums.
pub(crate) fn encode_pack(block: &mut [u8], token: Token, number: u64, pages: &[(PageId, u32)]) {
    assert!(pages.len() <= PACK_PAGES, "a pack of {} pages", pages.len());
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.put_u64(PACK_MAGIC);
    bytes.put_u32(0);
    bytes.put_u32(pages.len() as u32);
    bytes.put(&token.0);
    bytes.put_u64(number);
    for (pid, crc) in pages {
        bytes.put_u64(pid.0);
        bytes.put_u32(*crc);
        bytes.put_u32(0);
    }
    seal(bytes, block);
}

/// Reads the header of pack `number` of the increment `token`. `None` for anything else.
pub(crate) fn decode_pack(block: &[u8], token: Token, number: u64) -> Option<Vec<(PageId, u32)>> {
    let mut from = open(block, PACK_MAGIC).ok()?;
    let count = from.u32().ok()? as usize;
    if count > PACK_PAGES || from.array().ok()? != token.0 || from.u64().ok()? != number {
        return None;
    }
    let mut entry = || -> Result<(PageId, u32), Short> {
        let entry = (PageId(from.u64()?), from.u32()?);
        from.u32()?;
        Ok(entry)
    };
    (0..count).map(|_| entry().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token([2; 16]);

    fn block(fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut block = vec![9; BLOCK];
        fill(&mut block);
        block
    }

    fn header(base: Option<Token>) -> BackupHeader {
        let (uuid, start, end) = (Uuid([1; 16]), Lsn(4), Lsn(5));
        BackupHeader { uuid, token: TOKEN, base, start, end, pages: 6, stored: 7 }
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Each bit that counts is covered: a block with another one is refused.
    fn is_covered(block: &[u8], len: usize, is_refused: impl Fn(&[u8]) -> bool) {
        assert!(block[len..].iter().all(|&byte| byte == 0) && !is_refused(block));
        for bit in (0..8 * (len + 8)).chain([8 * BLOCK - 1]) {
            let mut damaged = block.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&damaged), "bit {bit}");
        }
        assert!(is_refused(&block[..BLOCK - 1]));
    }

    #[test]
    fn a_header_has_these_bytes() {
        let base = Token([3; 16]);
        let bytes = block(|block| header(Some(base)).encode(block));
        assert_eq!(&bytes[..16], [&b"FSHORBKT"[..], &[0x4d, 0xe2, 0x70, 0xc5], &[1, 0, 0, 0]].concat());
        assert_eq!(&bytes[16..64], [[1; 16], [2; 16], [3; 16]].concat());
        assert_eq!(&bytes[64..96], numbers(&[4, 5, 6, 7]));
        assert_eq!(BackupHeader::decode(&bytes), Ok(header(Some(base))));
        is_covered(&bytes, 96, |block| BackupHeader::decode(block).is_err());
        let full = block(|block| header(None).encode(block));
        assert_eq!((&full[48..64], BackupHeader::decode(&full)), (&[0; 16][..], Ok(header(None))));
        let newer = block(|block| {
            let mut bytes = full.clone();
            bytes[12] = 2;
            seal(bytes, block);
        });
        assert_eq!(BackupHeader::decode(&newer), Err(BlockFlaw::Newer(2)));
    }

    #[test]
    fn a_list_has_these_bytes() {
        let known = [KnownBackup { token: TOKEN, run: [6; 16], start: Lsn(4), end: Lsn(5) }; MAX_KNOWN];
        let bytes = block(|block| encode_known(block, Uuid([1; 16]), &known[..2]));
        assert_eq!(&bytes[..16], [&b"FSHORBKL"[..], &[0x3b, 0x8a, 0xf2, 0x43], &[1, 0, 0, 0]].concat());
        assert_eq!(&bytes[16..40], [&[1; 16][..], &[2, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(&bytes[40..88], [&[2; 16][..], &[6; 16], &numbers(&[4, 5])].concat());
        assert_eq!(decode_known(&bytes), Ok((Uuid([1; 16]), known[..2].to_vec())));
        is_covered(&bytes, 136, |block| decode_known(block).is_err());
        let most = block(|block| encode_known(block, Uuid([1; 16]), &known));
        assert_eq!(decode_known(&most).unwrap().1, known);
        let more = block(|block| {
            let mut bytes = most.clone();
            bytes[32] += 1;
            seal(bytes, block);
        });
        assert_eq!(decode_known(&more), Err(BlockFlaw::Damaged));
    }

    #[test]
    fn a_pack_has_these_bytes() {
        let pages = [(PageId(8), 0x0b0a_0908), (PageId(77), 12)];
        let bytes = block(|block| encode_pack(block, TOKEN, 3, &pages));
        assert_eq!(&bytes[..16], [&b"FSHORBKP"[..], &[0x24, 0xa1, 0x40, 0x69], &[2, 0, 0, 0]].concat());
        assert_eq!(&bytes[16..40], [&[2; 16][..], &numbers(&[3])].concat());
        assert_eq!(&bytes[40..72], numbers(&[8, 0x0b0a_0908, 77, 12]));
        assert_eq!(decode_pack(&bytes, TOKEN, 3), Some(pages.to_vec()));
        is_covered(&bytes, 72, |block| decode_pack(block, TOKEN, 3).is_none());
        assert_eq!(decode_pack(&bytes, TOKEN, 4), None, "another place");
        assert_eq!(decode_pack(&bytes, Token([3; 16]), 3), None, "another increment");
    }
}
