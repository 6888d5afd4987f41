//! Cycles of modules inside a crate, under the ratchet.
//!
//! The modules below one parent form one graph. The parent's own file is a node, and each child with all below it is
//! another. So a child that uses its parent's items makes a cycle only if the parent's file uses items of the child in
//! turn. Two folders that use each other are a cycle, even if no two of their files are.
//!
//! A crate's count is the number of independent cycles: edges − nodes + 1 of each strongly connected part. It is 0
//! exactly where there is no cycle. An edge less never raises it. A ring that gains a node by a split still counts 1.

use crate::{modules::Modules, ratchet::Amount, source::Source, tree::Finding};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const RULE: &str = "cycles";

/// The cycles of each crate: the shortest through each edge.
pub(crate) fn amounts(sources: &[Source]) -> Vec<Amount> {
    let amount = |modules: &Modules<'_>| {
        let levels = levels(modules);
        let count = levels.values().map(Level::independent).sum();
        let found = levels.values().flat_map(Level::findings).collect();
        (count > 0).then(|| Amount { rule: RULE, place: modules.place.clone(), count, found })
    };
    Modules::of_all(sources).iter().filter_map(amount).collect()
}

/// The graph below one parent.
#[derive(Default)]
struct Level {
    /// Where each edge is, for the first time.
    edges: BTreeMap<(Node, Node), Place>,
}

/// Name of a module.
type Node = String;

struct Place {
    path: String,
    line: usize,
    name: String,
}

/// The graphs of a crate by parents. An edge between two modules belongs to their nearest common parent.
fn levels(modules: &Modules<'_>) -> BTreeMap<Vec<String>, Level> {
    let mut levels: BTreeMap<Vec<String>, Level> = BTreeMap::new();
    for edge in modules.edges() {
        let common = edge.from.iter().zip(edge.to).take_while(|(a, b)| a == b).count();
        let node = |module: &[String]| match module {
            [] => "crate".to_owned(),
            _ => module[..module.len().min(common + 1)].join("::"),
        };
        let place = || Place { path: edge.path.to_owned(), line: edge.line, name: edge.name.clone() };
        let level = levels.entry(edge.from[..common].to_vec()).or_default();
        level.edges.entry((node(edge.from), node(edge.to))).or_insert_with(place);
    }
    levels
}

impl Level {
    fn after<'l>(&'l self, node: &'l Node) -> impl Iterator<Item = &'l Node> {
        self.edges.keys().filter(move |(from, _)| from == node).map(|(_, to)| to)
    }

    /// The shortest way from one node to another, both named.
    fn way<'l>(&'l self, from: &'l Node, to: &Node) -> Option<Vec<&'l Node>> {
        let mut came: BTreeMap<&Node, Option<&Node>> = BTreeMap::from([(from, None)]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut way = vec![node];
                while let Some(Some(before)) = way.last().and_then(|node| came.get(node)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            for next in self.after(node) {
                came.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    Some(node)
                });
            }
        }
        None
    }

    /// The shortest cycles through each edge, each from its least node on, without that node at the end.
    fn cycles(&self) -> BTreeSet<Vec<&Node>> {
        let ways = self.edges.keys().filter_map(|(from, to)| self.way(to, from));
        ways.map(|mut cycle| {
            let least = cycle.iter().enumerate().min_by_key(|&(_, node)| node).map_or(0, |(at, _)| at);
            cycle.rotate_left(least);
            cycle
        })
        .collect()
    }

    /// Edges − nodes + 1 of each strongly connected part.
    fn independent(&self) -> usize {
        let inside: Vec<_> = self.edges.keys().filter(|(from, to)| self.way(to, from).is_some()).collect();
        let nodes: BTreeSet<&Node> = inside.iter().flat_map(|(from, to)| [from, to]).collect();
        // A part is known by its least node.
        let part = |&node: &&Node| {
            nodes.iter().copied().find(|other| self.way(node, other).is_some() && self.way(other, node).is_some())
        };
        let parts: BTreeSet<_> = nodes.iter().filter_map(part).collect();
        inside.len() + parts.len() - nodes.len()
    }

    fn findings(&self) -> Vec<Finding> {
        let mut cycles: Vec<_> = self.cycles().into_iter().collect();
        cycles.sort_by_key(Vec::len);
        cycles.iter().map(|cycle| self.finding(cycle)).collect()
    }

    /// `a → b → a`, with the places where each uses the next.
    fn finding(&self, cycle: &[&Node]) -> Finding {
        let steps: Vec<(&Node, &Node)> = (0..cycle.len()).map(|i| (cycle[i], cycle[(i + 1) % cycle.len()])).collect();
        let places = steps.iter().filter_map(|(from, to)| self.edges.get(&((*from).clone(), (*to).clone())));
        let uses: Vec<String> = places.map(|Place { path, line, name }| format!("{path}:{line} {name}")).collect();
        let names: Vec<&str> = cycle.iter().chain(&cycle[..1]).map(|node| node.as_str()).collect();
        let place = self.edges.get(&(steps[0].0.clone(), steps[0].1.clone()));
        let (path, line) = place.map_or(("", 0), |place| (&place.path, place.line));
        Finding::new(path, line, format!("modules in a cycle: {} ({})", names.join(" → "), uses.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::sources;

    fn count(files: &[(&str, &str)]) -> usize {
        amounts(&sources(files)).iter().map(|amount| amount.count).sum()
    }

    #[test]
    fn a_cycle_is_named_with_its_files() {
        let files =
            [("lib", ""), ("a", "use crate::b::B;"), ("b", "\nfn f(c: super::c::C) {}"), ("c", "use crate::a::A;")];
        let amounts = amounts(&sources(&files));
        assert_eq!((amounts.len(), amounts[0].place.as_str(), amounts[0].count), (1, "crates/x", 1));
        let expected = "crates/x/src/a.rs:1: modules in a cycle: a → b → c → a (crates/x/src/a.rs:1 B, crates/x/src/b.rs:2 \
                        super::c::C, crates/x/src/c.rs:1 A)";
        assert_eq!(amounts[0].found.iter().map(Finding::to_string).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn a_graph_without_cycles_passes() {
        let files = [("lib", "pub use a::A;"), ("a", "use crate::{b::B, c::C};"), ("b", "use crate::c::C;"), ("c", "")];
        assert_eq!(count(&files), 0);
    }

    #[test]
    fn each_further_way_back_counts() {
        let [a, b] = [("a", "use crate::b::B;"), ("b", "use crate::a::A;")];
        assert_eq!(count(&[("lib", ""), a, b]), 1);
        let more = ("b", "use crate::{a::A, c::C};");
        assert_eq!(count(&[("lib", ""), a, more, ("c", "use crate::a::A;")]), 2);
        assert_eq!(count(&[("lib", ""), a, b, ("c", "use crate::d::D;"), ("d", "use crate::c::C;")]), 2, "two parts");
        assert_eq!(count(&[("lib", ""), a, b, ("c", "use crate::a::A;")]), 1, "a use from outside");
    }

    #[test]
    fn parent_and_child_are_one_if_each_uses_the_other() {
        let child = ("p/c", "use super::P;");
        assert_eq!(count(&[("lib", ""), ("p", "mod c;\npub use c::C;\nstruct P;"), child]), 0);
        assert_eq!(count(&[("lib", ""), ("p", "mod c;\nstruct P(c::C);"), child]), 1);
        assert_eq!(count(&[("lib", "mod a;\nconst K: u8 = a::L;"), ("a", "use crate::K;")]), 1, "the root as well");
    }

    #[test]
    fn folders_are_nodes_among_their_siblings() {
        let files = [
            ("lib", ""),
            ("p/mod", ""),
            ("p/a", "use crate::q::c::C;"),
            ("p/b", ""),
            ("q/mod", ""),
            ("q/c", ""),
            ("q/d", "use crate::p::b::B;"),
        ];
        let found = &amounts(&sources(&files))[0].found;
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("p → q → p"), "{}", found[0]);
    }
}
