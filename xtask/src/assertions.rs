//! How often the engine asserts what must hold: each layer below at least once in so many lines of code.

use crate::{
    source::{Source, is_ident},
    tree::Finding,
};

/// The layers whose memory has invariants that a crash or another thread may break.
const LAYERS: [&str; 8] = ["wal", "recovery", "buffer", "txn", "lock", "btree", "space", "classics"];

/// Lines of code, without comments and tests, that one assertion stands for at most.
const LINES: usize = 80;

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    LAYERS.into_iter().filter_map(|layer| check_layer(layer, sources)).collect()
}

fn check_layer(layer: &str, sources: &[Source]) -> Option<Finding> {
    let own = || sources.iter().filter(|source| source.layer() == Some(layer));
    let lines: usize = own().map(code_lines).sum();
    let found: usize = own().map(assertions).sum();
    let least = lines.div_ceil(LINES);
    (found < least).then(|| {
        let message = format!(
            "{layer} has {found} assertions in {lines} lines of code, {least} are needed: one in {LINES}; assert what \
             must hold of the engine's own memory, in pairs, never of bytes from disk or from a caller"
        );
        let folder = if layer == "classics" { layer.to_owned() } else { format!("crates/{layer}") };
        Finding::new(&folder, 0, message)
    })
}

fn code_lines(source: &Source) -> usize {
    source.product_lines().filter(|(_, line)| !line.trim().is_empty()).count()
}

/// Calls of the macros, and of functions that assert for several callers: `assert_…`.
fn assertions(source: &Source) -> usize {
    source.product_lines().map(|(_, line)| assertions_in(line)).sum()
}

fn assertions_in(line: &str) -> usize {
    let mut rest = line;
    let (mut count, mut is_definition) = (0, false);
    while let Some(at) = rest.bytes().position(is_ident) {
        let len = rest[at..].bytes().take_while(|&byte| is_ident(byte)).count();
        let (name, behind) = (&rest[at..at + len], &rest[at + len..]);
        let asserts = name.strip_prefix("debug_").unwrap_or(name).starts_with("assert");
        let is_macro = behind.starts_with('!') && (asserts || name == "unreachable");
        count += usize::from(is_macro || asserts && behind.starts_with('(') && !is_definition);
        (is_definition, rest) = (name == "fn", behind);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_layer_that_asserts_too_little_is_found_with_its_figures() {
        let code = "f();\n".repeat(159);
        assert!(messages("crates/wal/src/a.rs", &format!("{code}assert!(x);\n")).len() == 1);
        assert!(messages("crates/wal/src/a.rs", &format!("{code}assert!(x); debug_assert_eq!(a, b);\n")).is_empty());
        assert!(messages("crates/wal/src/a.rs", &format!("{code}assert_fits(x); assert_fits(y);\n")).is_empty());
        assert_eq!(messages("crates/wal/src/a.rs", &format!("{code}fn assert_fits(x: u8) {{}}\n")).len(), 1);
        let found = messages("crates/lock/src/a.rs", &format!("{code}unreachable!();\ng();\n"));
        assert!(
            found[0].starts_with("crates/lock: lock has 1 assertions in 161 lines of code, 3 are needed"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_no_code_and_no_engine_counts_neither_way() {
        let comments = "// assert!(x);\n\n".repeat(200);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "assert!(x);\n".repeat(200));
        let code = "f(\"assert!(x)\");\nprop_assert!(x);\n".repeat(40);
        assert_eq!(messages("crates/txn/src/a.rs", &format!("{comments}{tests}{code}")).len(), 1);
        assert!(messages("crates/txn/src/a.rs", &format!("{comments}{tests}")).is_empty());
        assert!(messages("crates/txn/tests/it/a.rs", &code).is_empty());
        assert!(messages("crates/db/src/a.rs", &code).is_empty());
    }
}
