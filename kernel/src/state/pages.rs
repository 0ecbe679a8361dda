//! A growing column in pages, which a snapshot shares until they are written again (STA-2).
//!
//! The trouble: at a barrier all that changed must stand still while rows go on coming. Copying a million
//! values then stops the data path for milliseconds (CKP-4). The idea: a snapshot takes hold of every page and
//! copies none; a page that is written while a snapshot holds it is copied then, alone.

use std::sync::Arc;

const PAGE_BITS: u32 = 12;
/// Values of a page.
pub const PAGE: usize = 1 << PAGE_BITS;

/// A run of values, full but for the last one of its column.
struct Page<T> {
    /// The values, unless they are shared.
    own: Vec<T>,
    /// The values, where a snapshot has taken hold of them since they were last written.
    shared: Option<Arc<Vec<T>>>,
}

impl<T: Copy> Page<T> {
    const EMPTY: Self = Page { own: Vec::new(), shared: None };

    #[inline]
    fn values(&self) -> &[T] {
        match &self.shared {
            None => &self.own,
            Some(shared) => shared,
        }
    }

    #[inline]
    fn own(&mut self) -> &mut Vec<T> {
        if let Some(shared) = &mut self.shared {
            self.own = thawed(shared);
            self.shared = None;
        }
        &mut self.own
    }

    /// What a snapshot holds of it from now on.
    fn share(&mut self) -> Page<T> {
        let own = &mut self.own;
        let shared = self.shared.get_or_insert_with(|| Arc::new(std::mem::take(own))).clone();
        Page { own: Vec::new(), shared: Some(shared) }
    }

    /// Forgets the values and keeps the room, unless a snapshot may have it.
    fn clear(&mut self) {
        self.own.clear();
        self.shared = None;
    }

    fn bytes(&self) -> usize {
        (self.own.capacity() + self.shared.as_ref().map_or(0, |shared| shared.capacity())) * size_of::<T>()
    }
}

/// The values for a page of its own: the very ones where no snapshot has them any more.
#[cold]
fn thawed<T: Copy>(values: &mut Arc<Vec<T>>) -> Vec<T> {
    match Arc::get_mut(values) {
        Some(only) => std::mem::take(only),
        None => {
            // With room for as many as before, so that a page that grows does not grow again and again.
            let mut copy = Vec::with_capacity(values.capacity());
            copy.extend_from_slice(values);
            copy
        }
    }
}

/// A column that only grows, is read and written by index, and can be cleared.
pub struct Pages<T> {
    pages: Vec<Page<T>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages { pages: Vec::new(), len: 0 }
    }
}

impl<T: Copy> Pages<T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `index`, which is below [`Pages::len`].
    #[inline]
    pub fn get(&self, index: u32) -> T {
        self.pages[index as usize >> PAGE_BITS].values()[index as usize & (PAGE - 1)]
    }

    /// The value at `index` to be written.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut T {
        let page = &mut self.pages[index as usize >> PAGE_BITS];
        &mut page.own()[index as usize & (PAGE - 1)]
    }

    /// Adds a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.last().push(value);
        self.len += 1;
    }

    /// Makes it as long as `len` with copies of `value`. Never shrinks.
    pub fn grow(&mut self, len: usize, value: T) {
        while self.len < len {
            let missing = len - self.len;
            let page = self.last();
            let added = missing.min(PAGE - page.len());
            page.resize(page.len() + added, value);
            self.len += added;
        }
    }

    /// The page that the next value belongs to.
    fn last(&mut self) -> &mut Vec<T> {
        let at = self.len >> PAGE_BITS;
        if at == self.pages.len() {
            self.pages.push(Page::EMPTY);
        }
        self.pages[at].own()
    }

    /// Forgets every value and keeps the room.
    pub fn clear(&mut self) {
        self.len = 0;
        self.pages.iter_mut().for_each(Page::clear);
    }

    /// The column as it is now. Takes hold of the pages and copies none.
    pub fn snapshot(&mut self) -> Pages<T> {
        Pages { pages: self.pages.iter_mut().map(Page::share).collect(), len: self.len }
    }

    /// The values in their order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.pages.iter().flat_map(|page| page.values().iter().copied())
    }

    /// Bytes held, those that a snapshot holds as well included.
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(Page::bytes).sum::<usize>() + self.pages.capacity() * size_of::<Page<T>>()
    }
}

/// Where a run of bytes stands.
#[derive(Clone, Copy)]
struct Place {
    chunk: u32,
    at: u32,
    len: u32,
}

/// Bytes of one chunk, unless a run is longer by itself.
const CHUNK_BYTES: usize = 16 << 10;

/// Runs of bytes, numbered from 0, which are never changed.
#[derive(Default)]
pub struct Runs {
    chunks: Vec<Page<u8>>,
    places: Pages<Place>,
}

impl Runs {
    /// Number of runs.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// No runs.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The run of this number.
    #[inline]
    pub fn get(&self, index: u32) -> &[u8] {
        let Place { chunk, at, len } = self.places.get(index);
        &self.chunks[chunk as usize].values()[at as usize..(at + len) as usize]
    }

    /// Adds a run.
    pub fn push(&mut self, run: &[u8]) {
        let fits = self.chunks.last().is_some_and(|last| {
            // Copying a chunk for a few more runs must not cost more than a new one.
            let most = if last.shared.is_some() { CHUNK_BYTES / 2 } else { CHUNK_BYTES };
            last.values().len() + run.len() <= most
        });
        if !fits {
            self.chunks.push(Page::EMPTY);
        }
        let chunk = self.chunks.len() - 1;
        let bytes = self.chunks[chunk].own();
        let place = Place { chunk: chunk as u32, at: bytes.len() as u32, len: run.len() as u32 };
        bytes.extend_from_slice(run);
        self.places.push(place);
    }

    /// Forgets every run.
    pub fn clear(&mut self) {
        // One chunk is kept for tables that are filled again and again.
        self.chunks.truncate(1);
        self.chunks.iter_mut().for_each(Page::clear);
        self.places.clear();
    }

    /// The runs as they are now. Copies none.
    pub fn snapshot(&mut self) -> Runs {
        Runs { chunks: self.chunks.iter_mut().map(Page::share).collect(), places: self.places.snapshot() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(Page::bytes).sum::<usize>();
        chunks + self.chunks.capacity() * size_of::<Page<u8>>() + self.places.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, PAGE, Pages, Runs};
    use proptest::prelude::*;

    /// CKP-4: a snapshot keeps what was there, whatever is written after it, and through several of them.
    #[test]
    fn a_snapshot_stands_still() {
        let mut pages = Pages::default();
        pages.grow(PAGE + 10, 1u64);
        let first = pages.snapshot();
        *pages.at(3) = 7;
        pages.push(9);
        let second = pages.snapshot();
        pages.grow(3 * PAGE, 4);
        *pages.at(PAGE as u32) = 8;
        assert_eq!((first.len(), first.get(3), first.get(PAGE as u32)), (PAGE + 10, 1, 1));
        assert_eq!((second.len(), second.get(3), second.get(PAGE as u32 + 10)), (PAGE + 11, 7, 9));
        assert_eq!((pages.len(), pages.get(3), pages.get(PAGE as u32), pages.get(3 * PAGE as u32 - 1)), (3 * PAGE, 7, 8, 4));
        pages.clear();
        assert!(pages.is_empty());
        assert_eq!(second.iter().filter(|value| *value == 7).count(), 1);
    }

    /// A page that no snapshot holds any more is written where it is.
    #[test]
    fn a_page_is_not_copied_for_nothing() {
        let mut pages = Pages::default();
        pages.grow(2, 1u64);
        drop(pages.snapshot());
        let before = std::ptr::from_ref(pages.at(0));
        drop(pages.snapshot());
        assert!(std::ptr::eq(before, pages.at(0)));
        let held = pages.snapshot();
        assert!(!std::ptr::eq(before, pages.at(0)));
        assert_eq!(held.get(0), 1);
    }

    proptest! {
        /// Pages and runs against plain vectors, with snapshots taken in between.
        #[test]
        fn pages_are_as_vectors(steps in prop::collection::vec((0u8..5, 0usize..3 * PAGE, any::<u32>()), 1..40)) {
            let (mut pages, mut plain) = (Pages::default(), Vec::new());
            let mut taken = Vec::new();
            for (step, number, value) in steps {
                match step {
                    0 => { pages.grow(number, value); plain.resize(number.max(plain.len()), value); }
                    1 => { pages.push(value); plain.push(value); }
                    2 if !plain.is_empty() => { *pages.at((number % plain.len()) as u32) = value; let at = number % plain.len(); plain[at] = value; }
                    3 => taken.push((pages.snapshot(), plain.clone())),
                    _ if number % 7 == 0 => { pages.clear(); plain.clear(); }
                    _ => {}
                }
                taken.push((Pages { pages: Vec::new(), len: 0 }, Vec::new()));
            }
            taken.push((pages, plain));
            for (pages, plain) in taken {
                prop_assert_eq!(pages.len(), plain.len());
                prop_assert_eq!(pages.iter().collect::<Vec<_>>(), plain);
            }
        }

        #[test]
        fn runs_are_as_vectors(steps in prop::collection::vec((0u8..8, 0usize..CHUNK_BYTES + 100), 1..60)) {
            let (mut runs, mut plain) = (Runs::default(), Vec::<Vec<u8>>::new());
            let mut taken = Vec::new();
            for (step, number) in steps {
                match step {
                    0 => taken.push((runs.snapshot(), plain.clone())),
                    1 if number % 5 == 0 => { runs.clear(); plain.clear(); }
                    _ => { let run = vec![step; if step > 5 { number } else { number % 20 }]; runs.push(&run); plain.push(run); }
                }
            }
            taken.push((runs, plain));
            for (runs, plain) in taken {
                prop_assert_eq!(runs.len(), plain.len());
                for (number, run) in plain.iter().enumerate() {
                    prop_assert_eq!(runs.get(number as u32), &run[..]);
                }
            }
        }
    }
}
