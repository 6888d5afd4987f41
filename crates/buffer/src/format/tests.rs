use super::*;

const UUID: Uuid = Uuid([9; 16]);

fn sealed(pid: u64, lsn: u64) -> [u8; PAGE_SIZE] {
    let mut page = blank_page(PageId(pid));
    page[AT_LSN..AT_LSN + 8].copy_from_slice(&lsn.to_le_bytes());
    page[5000] = 7;
    seal_page(&mut page);
    page
}

#[test]
fn every_flaw_of_a_page_is_told_apart() {
    let (pid, durable) = (PageId(5), Lsn(10));
    let page = sealed(5, 10);
    assert_eq!(verify_page(&page, pid, durable), Ok(()));
    assert_eq!(verify_page(&page, pid, Lsn(9)), Err(Flaw::AheadOfLog));
    assert_eq!(verify_page(&page, PageId(6), durable), Err(Flaw::WrongPage));
    assert_eq!(verify_page(&page[..PAGE_SIZE - 1], pid, durable), Err(Flaw::Short));
    assert_eq!(verify_page(&[0; PAGE_SIZE], pid, durable), Err(Flaw::NeverWritten));
}

#[test]
fn a_flipped_bit_anywhere_in_a_page_is_seen() {
    let mut page = sealed(5, 10);
    for at in 0..PAGE_SIZE {
        page[at] ^= 0x10;
        assert_eq!(verify_page(&page, PageId(5), Lsn(10)), Err(Flaw::Checksum), "byte {at}");
        page[at] ^= 0x10;
    }
}

#[test]
fn the_page_header_has_its_documented_layout() {
    use crate::page::PageMut;
    let mut page = blank_page(PageId(0x0102_0304));
    page.set_page_type(PageType::Tree);
    page.set_page_level(4);
    page.set_page_flags(0x0506);
    page.set_page_table(TableId(0x0708_090a));
    let expected = [0, 0, 0, 0, 3, 4, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 9, 8, 7, 0, 0, 0, 0];
    assert_eq!(page[..PAGE_HEADER], expected);
    assert_eq!(page_type(&page), Some(PageType::Tree));
    assert_eq!((page_level(&page), page_flags(&page)), (4, 0x0506));
    assert_eq!((page_id(&page), page_table(&page)), (PageId(0x0102_0304), TableId(0x0708_090a)));
    assert_eq!(page_type(&blank_page(PageId(1))), None);
}

fn batch() -> Batch {
    let entry = |n: u64| Entry { pid: PageId(n), lsn: Lsn(n * 3), crc: n as u32 };
    Batch { sequence: 77, entries: (1..=AREA_PAGES as u64).map(entry).collect() }
}

#[test]
fn a_doublewrite_batch_header_reads_back_and_a_flipped_byte_ends_it() {
    let mut block = vec![0; BLOCK];
    batch().encode(&mut block, UUID);
    assert_eq!(Batch::decode(&block, UUID), Some(batch()));
    assert_eq!(Batch::decode(&block, Uuid([8; 16])), None);
    assert_eq!(Batch::decode(&block[..BLOCK - 1], UUID), None);
    for at in 0..BLOCK {
        block[at] ^= 1;
        assert_eq!(Batch::decode(&block, UUID), None, "byte {at}");
        block[at] ^= 1;
    }
}

#[test]
fn a_sound_batch_header_with_fields_out_of_range_is_no_batch() {
    let forge = |at: usize, bytes: &[u8]| {
        let mut block = vec![0; BLOCK];
        batch().encode(&mut block, UUID);
        block[at..at + bytes.len()].copy_from_slice(bytes);
        seal_block(&mut block);
        Batch::decode(&block, UUID)
    };
    assert_eq!(forge(12, &(AREA_PAGES as u32 + 1).to_le_bytes()), None);
    assert_eq!(forge(AT_ENTRIES, &0u64.to_le_bytes()), None);
    assert_eq!(forge(AT_ENTRIES, &MAX_PAGES.to_le_bytes()), None);
    assert!(forge(AT_ENTRIES, &(MAX_PAGES - 1).to_le_bytes()).is_some());
}

#[test]
fn a_doublewrite_file_header_names_what_does_not_fit() {
    let mut block = vec![0; BLOCK];
    encode_file_header(&mut block, UUID);
    assert_eq!(check_file_header(&block, UUID), Ok(()));
    assert_eq!(check_file_header(&block, Uuid([8; 16])), Err(HeaderFlaw::Uuid));
    assert_eq!(check_file_header(&block[..100], UUID), Err(HeaderFlaw::Magic));
    for at in 0..BLOCK {
        block[at] ^= 1;
        let flaw = if at < 8 { HeaderFlaw::Magic } else { HeaderFlaw::Checksum };
        assert_eq!(check_file_header(&block, UUID), Err(flaw), "byte {at}");
        block[at] ^= 1;
    }
    block[12..16].copy_from_slice(&2u32.to_le_bytes());
    seal_block(&mut block);
    assert_eq!(check_file_header(&block, UUID), Err(HeaderFlaw::Newer(2)));
}

fn encode(record: &ChangeRecord<'_>, body: &[u8]) -> Vec<u8> {
    let mut header = [0; change_header_len(MAX_CHANGE_PAGES)];
    let len = record.encode_header(&mut header);
    [&header[..len], body].concat()
}

#[test]
fn a_change_record_reads_back() {
    for count in 0..=MAX_CHANGE_PAGES {
        let pages: Vec<PageId> = (0..count).map(|n| PageId(100 - n as u64)).collect();
        let init_mask = if count == 0 { 0 } else { 1 << (count - 1) };
        let record = ChangeRecord::new(33, UNDOABLE, init_mask, TableId(4), &pages);
        let payload = encode(&record, b"body");
        assert_eq!(payload.len(), change_header_len(count) + 4);
        let read = ChangeRecord::decode(&payload).expect("what was encoded");
        let mut expected = record;
        expected.body = b"body";
        assert_eq!(read, expected);
        assert_eq!(read.pages(), pages);
        assert_eq!(
            (0..9).filter(|&n| read.initialises(n)).collect::<Vec<_>>(),
            if count == 0 { vec![] } else { vec![count - 1] }
        );
        for len in 0..change_header_len(count) {
            assert!(ChangeRecord::decode(&payload[..len]).is_err(), "{len} bytes of {count} pages");
        }
    }
}

#[test]
fn a_malformed_change_record_is_refused() {
    let record = ChangeRecord::new(33, 0, 0b11, TableId(4), &[PageId(1), PageId(2)]);
    let good = encode(&record, b"");
    assert!(ChangeRecord::decode(&good).is_ok());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ChangeRecord::decode(&bytes).map(|_| ())
    };
    assert!(with(0, 0).is_err(), "kind 0");
    assert!(with(0, 128).is_err(), "unknown kind");
    assert!(with(0, 100).is_err(), "a transaction's record has no pages");
    assert!(with(1, 9).is_err(), "too many pages");
    assert!(with(2, 0b100).is_err(), "initialises a third page");
    for flag in [8, 16, 32, 64, 128] {
        assert_eq!(with(3, CLR | flag), Err("a page-change record has an unknown flag"));
    }
    assert!(with(8, 0).is_err(), "page 0");
    assert!(with(8, 2).is_err(), "the same page twice");
    assert!(with(13, 1).is_err(), "page out of range");
}
