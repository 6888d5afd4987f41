use super::*;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::format::blank_page;

fn map(region: u64) -> [u8; PAGE_SIZE] {
    let mut page = blank_page(map_of_region(region));
    init(&mut page, region);
    page
}

#[test]
fn a_page_is_allocated_once_and_freed_once() {
    let mut page = map(0);
    for number in [3, 4, 63, 64, REGION_PAGES - 1] {
        let pid = PageId(number);
        assert_eq!(is_allocated(&page, pid), Ok(false));
        mark_allocated(&mut page, pid).unwrap();
        assert_eq!(is_allocated(&page, pid), Ok(true));
        assert!(mark_allocated(&mut page, pid).is_err());
        mark_free(&mut page, pid).unwrap();
        assert!(mark_free(&mut page, pid).is_err());
    }
    assert_eq!(page, map(0));
}

#[test]
fn pages_that_are_never_handed_out_are_allocated() {
    let first = map(0);
    for number in 0..4 {
        assert_eq!(is_allocated(&first, PageId(number)), Ok(number < 3), "page {number}");
    }
    let second = map(1);
    for number in 0..4 {
        assert_eq!(is_allocated(&second, PageId(REGION_PAGES + number)), Ok(number == 2), "page {number}");
    }
}

#[test]
fn another_page_is_refused() {
    let mut page = map(0);
    assert!(mark_allocated(&mut page, PageId(REGION_PAGES)).is_err());
    page.set_page_type(PageType::Tree);
    assert!(mark_allocated(&mut page, PageId(9)).is_err());
}
