use super::*;

const R: u64 = REGION_PAGES;

fn file(pages: u64) -> Free {
    let mut free = Free::new();
    free.extend(pages);
    free
}

fn take(free: &mut Free, want: u64) -> Vec<u64> {
    let mut out = Vec::new();
    free.take(want, |pid| out.push(pid.0));
    out
}

#[test]
fn the_lowest_free_pages_go_first_and_maps_never() {
    let mut free = file(2 * R);
    assert_eq!(free.count(), 2 * R - 2);
    assert_eq!(take(&mut free, 4), [0, 1, 3, 4]);
    free.give_back(PageId(1));
    assert_eq!(take(&mut free, 2), [1, 5]);
    let rest = take(&mut free, 3 * R);
    assert_eq!(rest.len() as u64, 2 * R - 2 - 5);
    assert!(rest.is_sorted() && rest.iter().all(|pid| pid % R != MAP_IN_REGION));
    assert_eq!((free.count(), take(&mut free, 1)), (0, vec![]));
    free.give_back(PageId(R + 7));
    free.give_back(PageId(R - 1));
    assert_eq!(take(&mut free, 3), [R - 1, R + 7]);
    free.extend(2 * R + 1);
    assert_eq!(take(&mut free, 3), [2 * R]);
}

#[test]
fn a_truncation_leaves_used_pages_and_a_reserve() {
    let mut free = file(3 * R);
    let taken = take(&mut free, 1000);
    let last = *taken.last().unwrap();
    taken[..990].iter().for_each(|&pid| free.give_back(PageId(pid)));
    let before = free.count();
    assert_eq!(free.start_truncation(0, 3 * R, GRAIN), None, "too little would go");
    let cut = free.start_truncation(100, 64, GRAIN).unwrap();
    assert_eq!(cut, (last + 1).next_multiple_of(GRAIN), "the reserve lies among what is free below");
    assert_eq!(free.first_region_beyond_truncation(), Some(1));
    assert_eq!(free.end(), cut);
    assert!(free.count() >= 100);
    assert!(take(&mut free, 3 * R).iter().all(|&pid| pid < cut));
    assert!(free.cancel_truncation() && !free.cancel_truncation());
    assert_eq!((free.count(), free.end()), (before - 990 - (cut - last - 1), 3 * R));
    assert_eq!(take(&mut free, 1), [cut]);
    free.give_back(PageId(cut));
    let cut = free.start_truncation(2 * GRAIN, 64, GRAIN).unwrap();
    assert_eq!(free.finish_truncation(), 3 * R - cut);
    assert_eq!((free.file_pages(), free.count() >= 2 * GRAIN), (cut, true));
    free.extend(2 * R);
    let ready = free.count();
    assert!(ready > 2 * R - cut);
    assert_eq!(take(&mut free, 4 * R).len() as u64, ready);
}

#[test]
fn a_truncation_keeps_the_map_of_a_region_in_use() {
    let mut free = file(2 * R);
    let all = take(&mut free, 2 * R);
    all.iter().filter(|&&pid| pid != R + 1).for_each(|&pid| free.give_back(PageId(pid)));
    assert_eq!(free.used_end(), R + MAP_IN_REGION + 1);
    assert_eq!(free.start_truncation(0, 1, GRAIN), Some(R + GRAIN));
    assert_eq!(free.first_region_beyond_truncation(), Some(2));
    free.cancel_truncation();
    free.give_back(PageId(R + 1));
    assert_eq!(free.used_end(), 0);
    assert_eq!(
        free.start_truncation(GRAIN, 1, GRAIN),
        Some(2 * GRAIN),
        "the map page of the first region is in the way"
    );
    assert_eq!(free.first_region_beyond_truncation(), Some(1));
}

#[test]
fn a_fine_truncation_ends_behind_the_map_of_a_region_or_before_the_region() {
    let mut free = file(2 * R);
    let all = take(&mut free, 2 * R);
    all.iter().filter(|&&pid| pid >= R - 10).for_each(|&pid| free.give_back(PageId(pid)));
    assert_eq!(free.used_end(), R - 10);
    assert_eq!([free.find_truncation(0, 1, 1), free.find_truncation(5, 1, 1)], [Some(R - 10), Some(R - 5)]);
    assert_eq!([free.find_truncation(10, 1, 1), free.find_truncation(11, 1, 1)], [Some(R), Some(R + GRAIN)]);
    assert_eq!(free.find_truncation(10, R + 1, 1), None);
}
