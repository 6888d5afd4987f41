//! Lists of frames without allocation: each frame is on one list at most, and two arrays hold its neighbours.

use crate::frame::FrameNo;

const NONE: FrameNo = FrameNo::MAX;

/// The neighbours of each frame.
#[derive(Debug)]
pub struct Links {
    newer: Box<[FrameNo]>,
    older: Box<[FrameNo]>,
}

impl Links {
    /// Returns the links of frames that are on no list.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { newer: vec![NONE; frames].into(), older: vec![NONE; frames].into() }
    }
}

/// One list, from the newest frame to the oldest. All calls get the same links.
#[derive(Debug)]
pub struct List {
    newest: FrameNo,
    oldest: FrameNo,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, len: 0 }
    }
}

impl List {
    /// Returns the number of frames on the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a frame that is on no list as the newest.
    pub fn push(&mut self, links: &mut Links, no: FrameNo) {
        let second = std::mem::replace(&mut self.newest, no);
        links.newer[no as usize] = NONE;
        links.older[no as usize] = second;
        match second {
            NONE => self.oldest = no,
            second => links.newer[second as usize] = no,
        }
        self.len += 1;
    }

    /// Takes out a frame that is on this list.
    pub fn remove(&mut self, links: &mut Links, no: FrameNo) {
        let (newer, older) = (links.newer[no as usize], links.older[no as usize]);
        match newer {
            NONE => self.newest = older,
            newer => links.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links.newer[older as usize] = newer,
        }
        self.len -= 1;
    }

    /// Makes a frame of this list the newest.
    pub fn renew(&mut self, links: &mut Links, no: FrameNo) {
        if self.newest != no {
            self.remove(links, no);
            self.push(links, no);
        }
    }

    /// Returns the frames, the oldest first.
    pub fn oldest_first<'a>(&self, links: &'a Links) -> impl Iterator<Item = FrameNo> + use<'a> {
        let here = |no| (no != NONE).then_some(no);
        std::iter::successors(here(self.oldest), move |&no| here(links.newer[no as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_order_of_pushes_and_renewals() {
        let (mut links, mut list, mut other) = (Links::new(5), List::default(), List::default());
        let shown = |list: &List, links: &Links| list.oldest_first(links).collect::<Vec<_>>();
        [3, 1, 4, 0].into_iter().for_each(|no| list.push(&mut links, no));
        other.push(&mut links, 2);
        list.renew(&mut links, 1);
        list.renew(&mut links, 1);
        assert_eq!((shown(&list, &links), list.len()), (vec![3, 4, 0, 1], 4));
        for no in [3, 1, 4] {
            list.remove(&mut links, no);
        }
        assert_eq!((shown(&list, &links), shown(&other, &links)), (vec![0], vec![2]));
        list.remove(&mut links, 0);
        assert_eq!((shown(&list, &links), list.len()), (vec![], 0));
        list.push(&mut links, 4);
        assert_eq!(shown(&list, &links), [4]);
    }
}
