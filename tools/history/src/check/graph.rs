//! Directed graphs: strong components and shortest cycles.

use std::collections::VecDeque;

/// At most so many nodes are tried as the beginning of a shortest cycle.
const MAX_STARTS: usize = 500;
const UNSEEN: u32 = u32::MAX;

/// An arc to a node, with the number that its owner gave it.
#[derive(Clone, Copy, Debug)]
struct Arc {
    to: u32,
    label: u32,
}

/// A graph that does not change any more.
pub(super) struct Digraph {
    /// Where the arcs of each node begin, and where the last ones end.
    begins: Vec<u32>,
    arcs: Vec<Arc>,
}

/// The strong components.
pub(super) struct Components {
    /// The component of each node. No arc leads to a component of a higher number.
    pub(super) of: Vec<u32>,
    sizes: Vec<u32>,
}

impl Components {
    /// Whether some node reaches itself. There are no arcs from a node to itself.
    pub(super) fn has_cycle(&self) -> bool {
        self.sizes.iter().any(|&size| size > 1)
    }
}

impl Digraph {
    /// The graph of `arcs`: from, to, label.
    pub(super) fn new(nodes: usize, arcs: impl Iterator<Item = (usize, usize, usize)> + Clone) -> Self {
        let mut begins = vec![0_u32; nodes + 1];
        arcs.clone().for_each(|(from, ..)| begins[from + 1] += 1);
        for node in 0..nodes {
            begins[node + 1] += begins[node];
        }
        let mut places = begins.clone();
        let mut sorted = vec![Arc { to: 0, label: 0 }; begins[nodes] as usize];
        for (from, to, label) in arcs {
            sorted[places[from] as usize] = Arc { to: to as u32, label: label as u32 };
            places[from] += 1;
        }
        Self { begins, arcs: sorted }
    }

    fn nodes(&self) -> usize {
        self.begins.len() - 1
    }

    fn arcs(&self, node: u32) -> &[Arc] {
        &self.arcs[self.begins[node as usize] as usize..self.begins[node as usize + 1] as usize]
    }

    /// The nodes that arcs lead to from `node`.
    pub(super) fn next(&self, node: usize) -> impl Iterator<Item = usize> {
        self.arcs(node as u32).iter().map(|arc| arc.to as usize)
    }

    /// Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972), with a stack of its own.
    pub(super) fn components(&self) -> Components {
        let nodes = self.nodes();
        let mut found = Components { of: vec![UNSEEN; nodes], sizes: Vec::new() };
        let (mut number, mut low) = (vec![UNSEEN; nodes], vec![0_u32; nodes]);
        let (mut open, mut path): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let mut count = 0;
        for root in 0..nodes as u32 {
            if number[root as usize] != UNSEEN {
                continue;
            }
            path.push((root, 0));
            while let Some(&mut (node, ref mut arc)) = path.last_mut() {
                let at = node as usize;
                if *arc == 0 {
                    number[at] = count;
                    low[at] = count;
                    count += 1;
                    open.push(node);
                }
                if let Some(next) = self.arcs(node).get(*arc as usize) {
                    *arc += 1;
                    let to = next.to as usize;
                    if number[to] == UNSEEN {
                        path.push((next.to, 0));
                    } else if found.of[to] == UNSEEN {
                        low[at] = low[at].min(number[to]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent as usize] = low[parent as usize].min(low[at]);
                }
                if low[at] == number[at] {
                    found.close(&mut open, node);
                }
            }
        }
        found
    }

    /// Finds a cycle of the least weight, among those through the first nodes that are in a cycle at all, and returns
    /// the labels of its arcs. An arc weighs one, or nothing if `is_free` holds for its label.
    pub(super) fn shortest_cycle(
        &self,
        components: &Components,
        is_free: impl Fn(usize) -> bool,
    ) -> Option<Vec<usize>> {
        let in_cycle = |node: &u32| components.sizes[components.of[*node as usize] as usize] > 1;
        let starts = (0..self.nodes() as u32).filter(in_cycle).take(MAX_STARTS);
        let mut least: Option<(u32, Vec<usize>)> = None;
        for start in starts {
            let below = least.as_ref().map_or(UNSEEN, |(weight, _)| *weight);
            least = self.cycle_through(start, components, &is_free, below).or(least);
        }
        least.map(|(_, labels)| labels)
    }

    /// Finds a cycle of the least weight through `start`, if that is less than `below`. A breadth-first search whose
    /// free arcs go first.
    fn cycle_through(
        &self,
        start: u32,
        components: &Components,
        is_free: &impl Fn(usize) -> bool,
        below: u32,
    ) -> Option<(u32, Vec<usize>)> {
        let component = components.of[start as usize];
        let mut weights = vec![UNSEEN; self.nodes()];
        let mut by: Vec<(u32, u32)> = vec![(UNSEEN, 0); self.nodes()];
        // The start has no weight until the search comes back to it.
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((node, weight)) = queue.pop_front() {
            if node == start && weights[start as usize] != UNSEEN {
                let mut labels = Vec::new();
                let mut at = start;
                while labels.is_empty() || at != start {
                    let (before, label) = by[at as usize];
                    labels.push(label as usize);
                    at = before;
                }
                labels.reverse();
                return Some((weight, labels));
            }
            if node != start && weights[node as usize] < weight {
                continue;
            }
            for arc in self.arcs(node).iter().filter(|arc| components.of[arc.to as usize] == component) {
                let free = is_free(arc.label as usize);
                let reached = weight + u32::from(!free);
                if reached < weights[arc.to as usize].min(below) {
                    weights[arc.to as usize] = reached;
                    by[arc.to as usize] = (node, arc.label);
                    if free { queue.push_front((arc.to, reached)) } else { queue.push_back((arc.to, reached)) }
                }
            }
        }
        None
    }
}

impl Components {
    /// Takes the nodes of the component that `root` was the first of.
    fn close(&mut self, open: &mut Vec<u32>, root: u32) {
        let component = self.sizes.len() as u32;
        let mut size = 0;
        while let Some(node) = open.pop() {
            self.of[node as usize] = component;
            size += 1;
            if node == root {
                break;
            }
        }
        self.sizes.push(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, arcs: &[(usize, usize)]) -> Digraph {
        Digraph::new(nodes, arcs.iter().enumerate().map(|(label, &(from, to))| (from, to, label)))
    }

    #[test]
    fn components_come_after_those_they_lead_to() {
        let graph = graph(6, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 0)]);
        let components = graph.components();
        assert!(components.has_cycle());
        assert_eq!(components.of[0], components.of[1]);
        assert_eq!(components.of[0], components.of[2]);
        assert_eq!(components.of[3], components.of[4]);
        assert!(components.of[3] < components.of[0] && components.of[0] < components.of[5]);
    }

    #[test]
    fn the_shortest_cycle_is_found() {
        let arcs = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 2), (5, 6), (6, 7), (7, 5)];
        let graph = graph(8, &arcs);
        let cycle = |free: &[usize]| graph.shortest_cycle(&graph.components(), |label| free.contains(&label));
        let sorted = |free: &[usize]| {
            let mut labels = cycle(free).unwrap();
            labels.sort_unstable();
            labels
        };
        assert_eq!(sorted(&[]), [4, 5]);
        assert_eq!(sorted(&[6, 7]), [6, 7, 8]);
        assert_eq!(sorted(&[0, 1, 2, 3]), [0, 1, 2, 3]);
    }

    #[test]
    fn a_long_path_is_no_cycle_and_needs_no_deep_stack() {
        let nodes = 200_000;
        let graph = Digraph::new(nodes, (1..nodes).map(|node| (node - 1, node, node)));
        let components = graph.components();
        assert!(!components.has_cycle());
        assert!(graph.shortest_cycle(&components, |_| false).is_none());
    }
}
