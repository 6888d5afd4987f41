//! Backups of a database that no other process has open.

use crate::schema;
use crate::support::{Dir, foreshore};
use serde_json::json;

#[test]
fn a_backup_is_a_database_with_the_same_rows() {
    let (dir, to) = (Dir::with_database("backup"), Dir::new("backups"));
    let copy = to.path().join("copy");
    let out = copy.to_str().unwrap();
    let backup = &dir.json("backup", &[out], 0)[0];
    assert!(backup["pages"].as_u64() > Some(0) && backup["quarantined_pages"] == json!(0), "{backup}");
    let since = to.path().join("since");
    let increment = &dir.json("backup", &[since.to_str().unwrap(), "--since", out], 0)[0];
    assert!(increment["stored_pages"].as_u64() < backup["stored_pages"].as_u64(), "{increment} of {backup}");
    dir.run("backup", &["elsewhere", "--since", to.path().to_str().unwrap()]).is_refused(2, "take a full backup");
    let ran = |verb: &str| foreshore([verb.as_ref(), copy.as_os_str()].into_iter(), None);
    assert_eq!(ran("dump").output, dir.prints("dump", &[]));
    assert_eq!(ran("check").code, 0);
    dir.run("backup", &[out]).is_refused(2, out);
    assert_eq!(schema::lines("dump", &ran("dump").output).len(), 310);
    // An open has written to it, so it is no base any more.
    dir.run("backup", &["elsewhere", "--since", out]).is_refused(4, "it was opened as a database");
    Dir::new("backup-none").run("backup", &[out]).is_refused(3, "there is no database in");
}
