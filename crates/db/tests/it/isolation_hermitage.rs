//! The cases of Hermitage (Kleppmann, 2014), which tell levels of isolation apart, with what each level does in them.
//!
//! | case | read committed | snapshot | serializable |
//! |---|---|---|---|
//! | g0, dirty writes | no | no | no |
//! | g1a, aborted reads | no | no | no |
//! | g1b, intermediate reads | no | no | no |
//! | g1c, circular information flow | no | no | no |
//! | otv, observed transaction vanishes | no | no | no |
//! | pmp, predicate-many-preceders | yes | no | no |
//! | p4, lost update | yes | no | no |
//! | g-single, read skew | yes | no | no |
//! | g2-item, write skew | yes | yes | no |
//! | g2, write skew by a scan, also with two edges | yes | yes | no |

use crate::isolation_stage::play;

mod read_committed {
    use super::play;

    fn read_committed(script: &str, end: &str) {
        play("read-committed", script, end);
    }

    #[test]
    fn g0() {
        read_committed(
            "a w1=11
             b w1=12 => waits
             a w2=21
             a commit
             b => ok
             b w2=22
             b commit",
            "1=12 2=22",
        );
    }

    #[test]
    fn g1a() {
        read_committed(
            "a w1=101
             b all => 1=10 2=20
             a rollback
             b all => 1=10 2=20
             b commit",
            "1=10 2=20",
        );
    }

    #[test]
    fn g1b() {
        read_committed(
            "a w1=101
             b all => 1=10 2=20
             a w1=11
             a commit
             b all => 1=11 2=20
             b commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn g1c() {
        read_committed(
            "a w1=11
             b w2=22
             a r2 => 20
             b r1 => 10
             a commit
             b commit",
            "1=11 2=22",
        );
    }

    #[test]
    fn otv() {
        read_committed(
            "a w1=11
             a w2=19
             b w1=12 => waits
             a commit
             b => ok
             c r1 => 11
             b w2=18
             c r2 => 19
             b commit
             c r2 => 18
             c r1 => 12
             c commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn pmp() {
        read_committed(
            "a =30 => none
             b i3=30
             b commit
             a %3 => 3=30
             a commit",
            "1=10 2=20 3=30",
        );
    }

    #[test]
    fn pmp_of_writes() {
        read_committed(
            "a +10
             b x=20 => waits
             a commit
             b => none
             b =20 => 1=20
             b commit",
            "1=20 2=30",
        );
    }

    #[test]
    fn p4() {
        read_committed(
            "a r1 => 10
             b r1 => 10
             a w1=11
             b w1=12 => waits
             a commit
             b => ok
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn p4_with_locks() {
        read_committed(
            "a u1 => 10
             b u1 => waits
             a w1=11
             a commit
             b => 11
             b w1=12
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn p4_with_a_write_that_is_rolled_back() {
        read_committed(
            "a r1 => 10
             b r1 => 10
             a w1=11
             b w1=12 => waits
             a rollback
             b => ok
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn p4_after_the_other() {
        read_committed(
            "a r1 => 10
             b w1=12
             b commit
             a w1=11
             a commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn g_single() {
        read_committed(
            "a r1 => 10
             b r1 => 10
             b r2 => 20
             b w1=12
             b w2=18
             b commit
             a r2 => 18
             a commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g_single_by_scans() {
        read_committed(
            "a %5 => 1=10 2=20
             b w1=12
             b commit
             a %3 => 1=12
             a commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn g_single_with_a_write_at_the_end() {
        read_committed(
            "a r1 => 10
             b all => 1=10 2=20
             b w1=12
             b w2=18
             b commit
             a x=20 => none
             a r2 => 18
             a commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g_single_with_a_write_that_is_rolled_back() {
        read_committed(
            "a r1 => 10
             b all => 1=10 2=20
             b w1=12
             a x=20 => 2=20
             b w2=18 => waits
             a rollback
             b => ok
             b commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g2_item() {
        read_committed(
            "a all => 1=10 2=20
             b r1 => 10
             b r2 => 20
             a w1=11
             b w2=21
             a commit
             b commit",
            "1=11 2=21",
        );
    }

    #[test]
    fn g2() {
        read_committed(
            "a %3 => none
             b %3 => none
             a i3=30
             b i4=42
             a commit
             b commit",
            "1=10 2=20 3=30 4=42",
        );
    }

    #[test]
    fn g2_with_two_edges() {
        read_committed(
            "a all => 1=10 2=20
             b w2=25
             b commit
             c all => 1=10 2=25
             c commit
             a w1=0
             a commit",
            "1=0 2=25",
        );
    }
}

mod snapshot {
    use super::play;

    fn snapshot(script: &str, end: &str) {
        play("snapshot", script, end);
    }

    #[test]
    fn g0() {
        snapshot(
            "a w1=11
             b w1=12 => waits
             a w2=21
             a commit
             b => conflict",
            "1=11 2=21",
        );
    }

    #[test]
    fn g1a() {
        snapshot(
            "a w1=101
             b all => 1=10 2=20
             a rollback
             b all => 1=10 2=20
             b commit",
            "1=10 2=20",
        );
    }

    #[test]
    fn g1b() {
        snapshot(
            "a w1=101
             b all => 1=10 2=20
             a w1=11
             a commit
             b all => 1=10 2=20
             b commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn g1c() {
        snapshot(
            "a w1=11
             b w2=22
             a r2 => 20
             b r1 => 10
             a commit
             b commit",
            "1=11 2=22",
        );
    }

    #[test]
    fn otv() {
        snapshot(
            "a w1=11
             a w2=19
             b w1=12 => waits
             a commit
             b => conflict
             c r1 => 11
             c r2 => 19
             c commit",
            "1=11 2=19",
        );
    }

    #[test]
    fn pmp() {
        snapshot(
            "a =30 => none
             b i3=30
             b commit
             a %3 => none
             a commit",
            "1=10 2=20 3=30",
        );
    }

    #[test]
    fn pmp_of_writes() {
        snapshot(
            "a +10
             b x=20 => waits
             a commit
             b => conflict",
            "1=20 2=30",
        );
    }

    #[test]
    fn p4() {
        snapshot(
            "a r1 => 10
             b r1 => 10
             a w1=11
             b w1=12 => waits
             a commit
             b => conflict",
            "1=11 2=20",
        );
    }

    #[test]
    fn p4_with_locks() {
        snapshot(
            "a u1 => 10
             b u1 => waits
             a w1=11
             a commit
             b => conflict",
            "1=11 2=20",
        );
    }

    #[test]
    fn p4_with_a_write_that_is_rolled_back() {
        snapshot(
            "a r1 => 10
             b r1 => 10
             a w1=11
             b w1=12 => waits
             a rollback
             b => ok
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn p4_after_the_other() {
        snapshot(
            "a r1 => 10
             b w1=12
             b commit
             a w1=11 => conflict",
            "1=12 2=20",
        );
    }

    #[test]
    fn g_single() {
        snapshot(
            "a r1 => 10
             b r1 => 10
             b r2 => 20
             b w1=12
             b w2=18
             b commit
             a r2 => 20
             a commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g_single_by_scans() {
        snapshot(
            "a %5 => 1=10 2=20
             b w1=12
             b commit
             a %3 => none
             a commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn g_single_with_a_write_at_the_end() {
        snapshot(
            "a r1 => 10
             b all => 1=10 2=20
             b w1=12
             b w2=18
             b commit
             a x=20 => conflict",
            "1=12 2=18",
        );
    }

    #[test]
    fn g_single_with_a_write_that_is_rolled_back() {
        snapshot(
            "a r1 => 10
             b all => 1=10 2=20
             b w1=12
             a x=20 => 2=20
             b w2=18 => waits
             a rollback
             b => ok
             b commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g2_item() {
        snapshot(
            "a all => 1=10 2=20
             b r1 => 10
             b r2 => 20
             a w1=11
             b w2=21
             a commit
             b commit",
            "1=11 2=21",
        );
    }

    #[test]
    fn g2() {
        snapshot(
            "a %3 => none
             b %3 => none
             a i3=30
             b i4=42
             a commit
             b commit",
            "1=10 2=20 3=30 4=42",
        );
    }

    #[test]
    fn g2_with_two_edges() {
        snapshot(
            "a all => 1=10 2=20
             b w2=25
             b commit
             c all => 1=10 2=25
             c commit
             a w1=0
             a commit",
            "1=0 2=25",
        );
    }
}

mod serializable {
    use super::play;

    fn serializable(script: &str, end: &str) {
        play("serializable", script, end);
    }

    #[test]
    fn g0() {
        serializable(
            "a w1=11
             b w1=12 => waits
             a w2=21
             a commit
             b => ok
             b w2=22
             b commit",
            "1=12 2=22",
        );
    }

    #[test]
    fn g1a() {
        serializable(
            "a w1=101
             b all => waits
             a rollback
             b => 1=10 2=20
             b all => 1=10 2=20
             b commit",
            "1=10 2=20",
        );
    }

    #[test]
    fn g1b() {
        serializable(
            "a w1=101
             b all => waits
             a w1=11
             a commit
             b => 1=11 2=20
             b commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn g1c() {
        serializable(
            "a w1=11
             b w2=22
             a r2 => waits
             b r1 => deadlock
             a => 20
             a commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn otv() {
        serializable(
            "a w1=11
             a w2=19
             b w1=12 => waits
             a commit
             b => ok
             c r1 => waits
             b w2=18
             b commit
             c => 12
             c r2 => 18
             c commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn pmp() {
        serializable(
            "a =30 => none
             b i3=30 => waits
             a %3 => none
             a commit
             b => ok
             b commit",
            "1=10 2=20 3=30",
        );
    }

    #[test]
    fn pmp_of_writes() {
        serializable(
            "a +10
             b x=20 => waits
             a commit
             b => 1=20
             b commit",
            "2=30",
        );
    }

    #[test]
    fn p4() {
        serializable(
            "a r1 => 10
             b r1 => 10
             a w1=11 => waits
             b w1=12 => deadlock
             a => ok
             a commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn p4_with_locks() {
        serializable(
            "a u1 => 10
             b u1 => waits
             a w1=11
             a commit
             b => 11
             b w1=12
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn p4_with_a_write_that_is_rolled_back() {
        serializable(
            "a r1 => 10
             b r1 => 10
             a w1=11 => waits
             b w1=12 => deadlock
             a => ok
             a rollback",
            "1=10 2=20",
        );
    }

    #[test]
    fn p4_after_the_other() {
        serializable(
            "a r1 => 10
             b w1=12 => waits
             a w1=11
             a commit
             b => ok
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn g_single() {
        serializable(
            "a r1 => 10
             b r1 => 10
             b r2 => 20
             b w1=12 => waits
             a r2 => 20
             a commit
             b => ok
             b w2=18
             b commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g_single_by_scans() {
        serializable(
            "a %5 => 1=10 2=20
             b w1=12 => waits
             a %3 => none
             a commit
             b => ok
             b commit",
            "1=12 2=20",
        );
    }

    #[test]
    fn g_single_with_a_write_at_the_end() {
        serializable(
            "a r1 => 10
             b all => 1=10 2=20
             b w1=12 => waits
             a x=20 => deadlock
             b => ok
             b w2=18
             b commit",
            "1=12 2=18",
        );
    }

    /// The other's reads would keep the write out: it comes before them.
    #[test]
    fn g_single_with_a_write_that_is_rolled_back() {
        serializable(
            "a r1 => 10
             a x=20 => 2=20
             b all => waits
             a rollback
             b => 1=10 2=20
             b w1=12
             b w2=18
             b commit",
            "1=12 2=18",
        );
    }

    #[test]
    fn g2_item() {
        serializable(
            "a all => 1=10 2=20
             b r1 => 10
             b r2 => 20
             a w1=11 => waits
             b w2=21 => deadlock
             a => ok
             a commit",
            "1=11 2=20",
        );
    }

    #[test]
    fn g2() {
        serializable(
            "a %3 => none
             b %3 => none
             a i3=30 => waits
             b i4=42 => deadlock
             a => ok
             a commit",
            "1=10 2=20 3=30",
        );
    }

    #[test]
    fn g2_with_two_edges() {
        serializable(
            "a all => 1=10 2=20
             b w2=25 => waits
             a w1=0
             a commit
             b => ok
             b commit
             c all => 1=0 2=25
             c commit",
            "1=0 2=25",
        );
    }
}
