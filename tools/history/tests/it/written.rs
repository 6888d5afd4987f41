//! Histories are written as other checkers read them.

use crate::notation::history;
use foreshore_history::{Kind, edn, json};

const LISTS: &str = "ok 0-3 w1=5 r1=5 r2=
                     fail 1-2 w2=6 r1=
                     info 4-5 w1=7
                     info 6-9 w2=8 r1=
                     ok 7-8 s1-3:1=5,7";

#[test]
fn lists_as_edn() {
    let expected = "\
{:index 0 :type :invoke :process 0 :f :txn :value [[:append 1 5] [:r 1 nil] [:r 2 nil]]}
{:index 1 :type :invoke :process 1 :f :txn :value [[:append 2 6] [:r 1 nil]]}
{:index 2 :type :fail :process 1 :f :txn :value [[:append 2 6] [:r 1 nil]]}
{:index 3 :type :ok :process 0 :f :txn :value [[:append 1 5] [:r 1 [5]] [:r 2 []]]}
{:index 4 :type :invoke :process 2 :f :txn :value [[:append 1 7]]}
{:index 5 :type :info :process 2 :f :txn :value [[:append 1 7]]}
{:index 6 :type :invoke :process 3 :f :txn :value [[:append 2 8] [:r 1 nil]]}
{:index 7 :type :invoke :process 4 :f :txn :value [[:r 1 nil] [:r 2 nil]]}
{:index 8 :type :ok :process 4 :f :txn :value [[:r 1 [5 7]] [:r 2 []]]}
{:index 9 :type :info :process 3 :f :txn :value [[:append 2 8] [:r 1 nil]]}
";
    assert_eq!(edn(&history(Kind::Append, LISTS)), expected);
}

#[test]
fn registers_as_edn() {
    let text = "ok 0-1 w1=5 r2=\n ok 2-3 s1-3:1=5 r1=5";
    let expected = "\
{:index 0 :type :invoke :process 0 :f :txn :value [[:w 1 5] [:r 2 nil]]}
{:index 1 :type :ok :process 0 :f :txn :value [[:w 1 5] [:r 2 nil]]}
{:index 2 :type :invoke :process 1 :f :txn :value [[:r 1 nil] [:r 2 nil] [:r 1 nil]]}
{:index 3 :type :ok :process 1 :f :txn :value [[:r 1 5] [:r 2 nil] [:r 1 5]]}
";
    assert_eq!(edn(&history(Kind::Register, text)), expected);
}

/// An indeterminate transaction counts as committed if another transaction has read from it.
#[test]
fn sessions_as_json() {
    let mut lists = history(Kind::Append, LISTS);
    lists.sessions = 2;
    let expected = r#"[
[{"events":[{"Write":{"variable":1,"version":5}},{"Read":{"variable":1,"version":5}},{"Read":{"variable":2,"version":null}}],"committed":true},
 {"events":[{"Write":{"variable":1,"version":7}}],"committed":true},
 {"events":[{"Read":{"variable":1,"version":7}},{"Read":{"variable":2,"version":null}}],"committed":true}],
[{"events":[{"Write":{"variable":2,"version":6}},{"Read":{"variable":1,"version":null}}],"committed":false},
 {"events":[{"Write":{"variable":2,"version":8}},{"Read":{"variable":1,"version":null}}],"committed":false}]
]
"#;
    assert_eq!(json(&lists), expected);
}
