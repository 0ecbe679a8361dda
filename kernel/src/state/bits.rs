//! A growing set of small numbers: one bit a group.

/// Bits, all clear at first.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Makes room for `len` bits; new ones are clear. Never shrinks.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            self.len = len;
            self.words.resize(len.div_ceil(64), 0);
        }
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bits at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets bit `index`, which [`Bits::grow`] has made.
    #[inline]
    pub fn set(&mut self, index: u32) {
        self.words[index as usize / 64] |= 1 << (index % 64);
    }

    /// Sets or clears bit `index`.
    pub fn put(&mut self, index: u32, on: bool) {
        let mask = 1 << (index % 64);
        let word = &mut self.words[index as usize / 64];
        *word = if on { *word | mask } else { *word & !mask };
    }

    /// Whether bit `index` is set.
    #[inline]
    pub fn get(&self, index: u32) -> bool {
        self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Has no bits any more and keeps the room.
    pub fn empty(&mut self) {
        self.words.clear();
        self.len = 0;
    }

    /// Clears every bit.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// The bits as they are; clear ones stay. `None` when none is set.
    pub fn take(&mut self) -> Option<Bits> {
        if self.words.iter().all(|word| *word == 0) {
            return None;
        }
        let clear = Bits { words: vec![0; self.words.len()], len: self.len };
        Some(std::mem::replace(self, clear))
    }

    /// Numbers of the set bits, ascending.
    pub fn ones(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    i as u32 * 64 + bit
                })
            })
        })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}
