//! The pieces of a large record.

/// Walks over a payload in pieces of given lengths.
pub(super) struct Pieces<'a> {
    parts: &'a [&'a [u8]],
    at: usize,
}

impl<'a> Pieces<'a> {
    pub(super) const fn of(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, at: 0 }
    }

    /// Returns the next `len` bytes, which must exist.
    pub(super) fn take(&mut self, mut len: usize) -> Vec<&'a [u8]> {
        debug_assert!(self.parts.first().is_none_or(|part| self.at <= part.len()), "at {} of its part", self.at);
        let mut taken = Vec::new();
        while len > 0 {
            let (part, rest) = self.parts.split_first().expect("the lengths add up to the payload");
            let piece = &part[self.at..];
            if piece.len() > len {
                taken.push(&piece[..len]);
                self.at += len;
                return taken;
            }
            len -= piece.len();
            taken.push(piece);
            (self.parts, self.at) = (rest, 0);
        }
        taken
    }
}
