//! Did you mean ...?

/// The nearest known word within a third of its length (at least one edit).
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), *k))
        .filter(|(distance, k)| *distance <= (k.len().max(word.len()) / 3).max(1))
        .min()
        .map(|(_, k)| k)
}
