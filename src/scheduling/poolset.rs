//! A small set of pool indexes.

/// Bits of pool indexes; ordered and hashed as a value, so that it can key the node classes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolSet(Vec<u64>);

impl PoolSet {
    /// No pool, with room for `len` of them.
    #[must_use]
    pub fn empty(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Adds one.
    pub fn insert(&mut self, ix: usize) {
        if let Some(word) = self.0.get_mut(ix / 64) {
            *word |= 1 << (ix % 64);
        }
    }

    /// Every index, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(w, &word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| w * 64 + bit)
        })
    }
}
