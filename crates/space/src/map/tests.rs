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

#[test]
fn a_rebuilt_map_has_every_page_before_the_end_allocated() {
    for region in [0, 1] {
        let first = region * REGION_PAGES;
        for pages in [0, 1, 3, 4, 8, 9, 64, REGION_PAGES - 1, REGION_PAGES, REGION_PAGES + 2, REGION_PAGES + 3] {
            let mut page = [0x5a; PAGE_SIZE];
            page[8..16].copy_from_slice(&map_of_region(region).0.to_le_bytes());
            rebuild(&mut page, region, PageId(first + pages));
            for at in (0..80).chain(REGION_PAGES - 9..REGION_PAGES) {
                let is_reserved = at == MAP_IN_REGION || (region == 0 && at < MAP_IN_REGION);
                let expected = Ok(at < pages || is_reserved);
                assert_eq!(is_allocated(&page, PageId(first + at)), expected, "{at} of {pages} in region {region}");
            }
            assert!(is_rebuilt(&page) && !is_rebuilt(&map(region)));
            assert_eq!(has_next(&page), pages > REGION_PAGES + MAP_IN_REGION, "{pages} in region {region}");
        }
    }
}
