//! The rounds of a comparison: which rows there are, in which order, and the process of each.

use crate::{
    cli::Cli,
    engine::Purpose,
    engines,
    error::{Error, Result},
    proc::Machine,
    report::{Failure, Report, median},
    row::Row,
    spec::{Choice, Spec},
    workload::{Shape, Workload},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Tries of a row that time was stolen from.
const TRIES: usize = 3;
/// First argument of a process that loads a database.
pub(crate) const LOAD: &str = "--load-row";
/// First argument of a process that measures a row.
pub(crate) const MEASURE: &str = "--measure-row";

/// The directory of a comparison, removed with the value.
struct Home(PathBuf);

impl Home {
    fn new(cli: &Cli) -> Result<Self> {
        let fresh = || PathBuf::from(format!(".bench-compare-{}", std::process::id()));
        let path = cli.dir.clone().unwrap_or_else(fresh);
        fs::create_dir(&path).map_err(Error::io("create", &path))?;
        let whole = path.canonicalize().map_err(Error::io("find", &path))?;
        Ok(Self(whole))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed is left to the user, whose disk it is.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the comparison.
///
/// # Errors
/// `Engine` for a name that is not known; `Io` of the directory. A row that fails is part of the report.
pub(crate) fn run(cli: &Cli, workload: Workload) -> Result<Report> {
    let groups = plan(cli, workload)?;
    let home = Home::new(cli)?;
    let machine = Machine::probe(&home.0)?;
    if !machine.is_durable() {
        eprintln!("the directory is on {}: durable rows say nothing there", machine.filesystem);
    }
    let mut failures = Vec::new();
    let mut rows: Vec<Vec<Vec<Row>>> = groups.iter().map(|group| vec![Vec::new(); group.len()]).collect();
    for round in 0..cli.rounds {
        for (group, rows) in groups.iter().zip(&mut rows) {
            for at in rotated(group.len(), round) {
                let spec = Spec { dir: home.0.join("row"), ..group[at].clone() };
                eprintln!("round {} of {}: {}", round + 1, cli.rounds, spec.title());
                match one_row(&home.0, &spec) {
                    Ok(row) => rows[at].push(row),
                    Err(error) => {
                        eprintln!("{error}");
                        failures.push(Failure { row: spec.title(), error: error.to_string() });
                    }
                }
            }
        }
    }
    let rows = rows.into_iter().flatten().filter_map(median).collect();
    Ok(Report::new(cli, workload, machine, rows, failures))
}

/// Returns the rows of a round, grouped: the rows of a group differ in engine and variant alone.
///
/// # Errors
/// `Engine` for a name that is not known.
pub(crate) fn plan(cli: &Cli, workload: Workload) -> Result<Vec<Vec<Spec>>> {
    for name in &cli.engines {
        let (engine, variant) = name.split_once(':').map_or((name.as_str(), None), |(e, v)| (e, Some(v)));
        let is_missing = engines::missing().any(|missing| missing == engine);
        let Some(kind) = engines::named(engine) else {
            if is_missing {
                continue;
            }
            return Err(engines::unknown(name.clone()));
        };
        let Some(variant) = variant else { continue };
        let asked = shapes(cli, workload).flat_map(|shape| [(shape, true), (shape, false)]);
        let known: Vec<(bool, &str)> = asked
            .flat_map(|(shape, durable)| {
                let variants = (kind.variants)(Purpose::new(workload, shape, durable));
                variants.into_iter().map(move |known| (durable, known.name))
            })
            .collect();
        if !known.iter().any(|&(_, known)| known == variant) {
            let mut names: Vec<&str> = known.into_iter().map(|(_, known)| known).collect();
            names.sort_unstable();
            names.dedup();
            return Err(Error::Variant { name: name.clone(), known: names.join(", ") });
        }
        if !cli.durabilities(workload).into_iter().any(|durable| known.contains(&(durable, variant))) {
            let expected = "with --lazy a variant whose commits may be lost, else one whose commits are durable";
            return Err(Error::Option { name: "engines", value: name.clone(), expected });
        }
    }
    let sizes = if workload == Workload::Values { &cli.sizes[..] } else { &[0] };
    let mut groups = Vec::new();
    for &value_bytes in sizes {
        for durable in cli.durabilities(workload) {
            for shape in shapes(cli, workload) {
                for &threads in &cli.threads {
                    let group = group(cli, Purpose::new(workload, shape, durable), shape, value_bytes, threads);
                    groups.extend((!group.is_empty()).then_some(group));
                }
            }
        }
    }
    Ok(groups)
}

/// Returns the shapes that were asked for; `None` once if the workload has none.
fn shapes(cli: &Cli, workload: Workload) -> impl Iterator<Item = Option<Shape>> {
    let has_none = Shape::of(workload).is_empty();
    cli.shapes.iter().copied().map(Some).chain(has_none.then_some(None))
}

/// Returns the rows of a group; none where readers would be asked for twice.
fn group(cli: &Cli, purpose: Purpose, shape: Option<Shape>, value_bytes: u64, threads: usize) -> Vec<Spec> {
    let mut group = Vec::new();
    let Purpose { workload, writes, durable } = purpose;
    if !writes && !durable && cli.durable {
        return group;
    }
    for kind in engines::ALL {
        if shape == Some(Shape::GetMany100) && !kind.has_get_many {
            continue;
        }
        for variant in (kind.variants)(purpose) {
            let name = format!("{}:{}", kind.name, variant.name);
            let is_asked = |asked: &String| *asked == name || *asked == kind.name;
            if cli.engines.is_empty() || cli.engines.iter().any(is_asked) {
                group.push(Spec {
                    choice: Choice { engine: kind.name.to_owned(), variant: variant.name.to_owned() },
                    workload,
                    shape,
                    value_bytes,
                    threads,
                    // A row that only reads has nothing to lose.
                    durable: durable || !writes,
                    cache: cli.cache,
                    secs: cli.secs,
                    scale: cli.scale.unwrap_or(workload.default_scale()),
                    backlog: cli.backlog,
                    seed: cli.seed,
                    dir: PathBuf::new(),
                });
            }
        }
    }
    group
}

/// Returns `0..count`, begun at the place of `round`.
fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
}

/// Measures a row, again if time was stolen from it.
fn one_row(home: &Path, spec: &Spec) -> Result<Row> {
    let mut row = fresh_row(home, spec)?;
    for _ in 1..TRIES {
        if !row.is_stolen {
            break;
        }
        eprintln!("  {:.2} cores were stolen: once more", row.cpu_stolen_cores);
        row = fresh_row(home, spec)?;
    }
    Ok(row)
}

/// Measures a row on a copy of the engine's loaded database.
fn fresh_row(home: &Path, spec: &Spec) -> Result<Row> {
    let loaded = home.join(format!("loaded-{}-{}", spec.choice.engine, spec.value_bytes));
    if !loaded.exists() {
        load(&loaded, spec)?;
    }
    copy(&loaded, &spec.dir)?;
    sync(&spec.dir)?;
    let measured = child(MEASURE, spec);
    fs::remove_dir_all(&spec.dir).map_err(Error::io("remove", &spec.dir))?;
    let said = measured?;
    serde_json::from_str(&said).map_err(|error| Error::Child { row: spec.title(), cause: format!("{error}: {said}") })
}

/// Loads a database at the settings of the engine's first durable variant.
fn load(dir: &Path, spec: &Spec) -> Result<()> {
    let kind = engines::named(&spec.choice.engine).ok_or_else(|| engines::unknown(spec.choice.engine.clone()))?;
    let purpose = Purpose { workload: spec.workload, writes: true, durable: true };
    let variant = (kind.variants)(purpose).first().map_or("", |variant| variant.name).to_owned();
    fs::create_dir(dir).map_err(Error::io("create", dir))?;
    let spec =
        Spec { choice: Choice { variant, ..spec.choice.clone() }, dir: dir.to_owned(), durable: true, ..spec.clone() };
    child(LOAD, &spec).map(drop).inspect_err(|_| {
        // The next row must not find half a load.
        let _ = fs::remove_dir_all(dir);
    })
}

fn child(verb: &str, spec: &Spec) -> Result<String> {
    let failed = |cause: String| Error::Child { row: spec.title(), cause };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let spec = serde_json::to_string(spec).map_err(|error| failed(error.to_string()))?;
    let ended = Command::new(program).args([verb, &spec]).stderr(Stdio::piped()).output();
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    Err(failed(format!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim())))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).map_err(Error::io("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("list", from))? {
        let entry = entry.map_err(Error::io("list", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(Error::io("copy", &path))?;
        }
    }
    Ok(())
}

/// Writes the copied files, so that the row does not pay for them.
fn sync(dir: &Path) -> Result<()> {
    let open = fs::File::open(dir).map_err(Error::io("open", dir))?;
    rustix::fs::syncfs(&open).map_err(|error| Error::io("sync", dir)(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn planned(arguments: &str) -> Result<Vec<Vec<Spec>>> {
        let mut cli = Cli::try_parse_from(["compare"].into_iter().chain(arguments.split(' '))).unwrap();
        let workload = cli.checked()?;
        plan(&cli, workload)
    }

    #[test]
    fn every_row_begins_a_round_once() {
        let firsts: Vec<_> = (0..4).filter_map(|round| rotated(4, round).next()).collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
        assert_eq!(rotated(3, 7).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(rotated(0, 1).count(), 0);
    }

    #[test]
    fn rows_are_those_of_the_engines_that_were_named() {
        let groups = planned("tpcb --engines foreshore,lmdb:nosync --durable --lazy --threads 1,2").unwrap();
        let names: Vec<Vec<String>> =
            groups.iter().map(|group| group.iter().map(|spec| spec.choice.variant.clone()).collect()).collect();
        let (durable, lazy) = (["pipelined", "blocking"], ["async", "nosync"]);
        assert_eq!(names, [durable, durable, lazy, lazy]);
        assert!(matches!(planned("tpcb --engines oracle"), Err(Error::Engine { .. })));
        assert!(
            matches!(planned("tpcb --engines lmdb:fast"), Err(Error::Variant { known, .. }) if known.contains("nosync"))
        );
        let refused = |arguments| matches!(planned(arguments), Err(Error::Option { name: "engines", .. }));
        assert!(refused("tpcb --engines lmdb:nosync") && refused("tpcb --lazy --engines lmdb:default"));
    }

    #[test]
    fn reads_have_a_group_a_shape_and_ask_no_engine_for_what_it_lacks() {
        let groups = planned("read --engines lmdb --threads 1").unwrap();
        let shapes: Vec<_> = groups.iter().map(|group| group[0].shape).collect();
        assert_eq!(shapes, [Some(Shape::Get1), Some(Shape::Get100), Some(Shape::Range10)]);
        assert!(groups.iter().flatten().all(|spec| spec.durable));
    }
}
