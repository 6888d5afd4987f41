//! Little-endian encoding without panics: bytes from disk decode to a value or to [`Short`].

/// Fewer bytes than the format asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// Reads fields from the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(Short)?;
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Short)?;
        self.rest = tail;
        Ok(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Result<u64, Short> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A length of two bytes, then as many bytes.
    pub fn short_bytes(&mut self) -> Result<&'a [u8], Short> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }

    /// What is left.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Appends fields to a byte vector.
pub trait Put {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends one byte.
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.put(&[v]);
    }

    /// Appends two bytes.
    #[inline]
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }

    /// Appends four bytes.
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }

    /// Appends eight bytes.
    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }

    /// Appends a length of two bytes, then the bytes. `bytes` is shorter than 64 KiB.
    #[inline]
    fn put_short_bytes(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).expect("short_bytes takes less than 64 KiB");
        self.put_u16(len);
        self.put(bytes);
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Fills an array from its start.
#[derive(Debug)]
pub struct Filler<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Filler<N> {
    /// An array of zeros, of which nothing is filled.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Returns what is filled.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Fills up to `len` with zeros.
    pub fn skip_to(&mut self, len: usize) {
        assert!((self.len..=N).contains(&len), "{len} of {N} bytes, and {} are filled", self.len);
        self.len = len;
    }

    /// Returns the array.
    #[must_use]
    pub fn full(self) -> [u8; N] {
        assert_eq!(self.len, N, "bytes of an array that are filled, and its length");
        self.bytes
    }
}

impl<const N: usize> Default for Filler<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Put for Filler<N> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Reads two bytes at `at`. The caller has checked the bounds.
#[inline]
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Reads four bytes at `at`. The caller has checked the bounds.
#[inline]
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads eight bytes at `at`. The caller has checked the bounds.
#[inline]
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
