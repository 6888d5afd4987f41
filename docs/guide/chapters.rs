//! The chapters of the guide, so that each block of code in them is compiled and run as a doctest.

#![forbid(unsafe_code)]

/// Makes a module of each chapter, with its text as the documentation.
macro_rules! chapters {
    ($($chapter:ident $file:literal)*) => {$(
        #[doc = include_str!(concat!("src/", $file))]
        pub mod $chapter {}
    )*};
}

chapters! {
    about "about.md"
    first "first.md"
    types "types.md"
    tables "tables.md"
    transactions "transactions.md"
    durability "durability.md"
    options "options.md"
    disk "disk.md"
    asynchronous "async.md"
    queues "queues.md"
    time_series "time-series.md"
    large_values "large-values.md"
    indexes "indexes.md"
    bulk_load "bulk-load.md"
    merge "merge.md"
    two_phase "two-phase.md"
    read_only "read-only.md"
    languages "languages.md"
    backups "backups.md"
    testing "tests.md"
    errors "errors.md"
    inside "inside.md"
    watching "watching.md"
    tuning "tuning.md"
}

#[cfg(test)]
mod tests {
    /// What a caller does about each error is in the chapter of errors.
    #[test]
    fn each_error_has_a_row() {
        let (source, chapter) = (include_str!("../../crates/db/src/error.rs"), include_str!("src/errors.md"));
        let (_, variants) = source.split_once("pub enum Error {").expect("the enum");
        let variants = variants.lines().filter_map(|line| line.strip_prefix("    "));
        let names = variants.filter(|line| line.starts_with(char::is_uppercase));
        let names: Vec<&str> = names.filter_map(|line| line.split([' ', '(', ',']).next()).collect();
        assert!(names.len() > 40, "{names:?}");
        let missing = |name: &&str| !chapter.contains(&format!("`{name}`"));
        assert_eq!(names.into_iter().filter(missing).collect::<Vec<_>>(), [""; 0]);
    }

    /// The chapter of watching lists the metrics of the engine, and no others.
    #[test]
    fn each_metric_has_a_row() {
        let sources =
            [include_str!("../../crates/db/src/metrics.rs"), include_str!("../../crates/db/src/metrics/engine.rs")];
        let calls =
            |text: &'static str| ["one(", "by(", "family("].into_iter().flat_map(move |call| text.split(call).skip(1));
        let name = |call: &'static str| call.trim_start().strip_prefix('"')?.split('"').next();
        let mut names: Vec<_> = sources.into_iter().flat_map(calls).filter_map(name).collect();
        let rows = include_str!("src/watching.md").split_once("## All metrics").expect("the heading").1.lines();
        let mut listed: Vec<_> = rows.filter_map(|row| row.strip_prefix("| `foreshore_")?.split('`').next()).collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert!(names.len() > 80, "{names:?}");
        assert_eq!(names, listed);
    }
}
