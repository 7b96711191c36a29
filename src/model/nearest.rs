//! Did you mean ...?

/// Shortest word that is taken for the beginning of a longer one.
const BEGINNING: usize = 3;

/// The nearest known word within a third of its length (at least one edit), else the only known word
/// that begins with it.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), *k))
        .filter(|(distance, k)| *distance <= (k.len().max(word.len()) / 3).max(1))
        .min()
        .map(|(_, k)| k);
    near.or_else(|| begun(word, known))
}

fn begun<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let mut longer = known.iter().filter(|k| word.len() >= BEGINNING && k.starts_with(word));
    let only = longer.next()?;
    longer.next().is_none().then_some(*only)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn far_words_are_not_meant_and_beginnings_are() {
        let keys = ["id", "model", "limits", "base-seconds", "seconds-per-input-ktok", "speed"];
        for (word, meant) in [
            ("modle", Some("model")),
            ("base", Some("base-seconds")),
            ("seconds", Some("seconds-per-input-ktok")),
            ("rpm", None),
            ("foo", None),
            ("slots", None),
            ("ba", None),
        ] {
            assert_eq!(nearest(word, &keys), meant, "{word}");
        }
        assert_eq!(nearest("blocker", &["low", "medium", "high", "critical"]), None);
        assert_eq!(nearest("nim", &["agy", "codex", "host"]), None);
        assert_eq!(nearest("requests", &["requests-per-minute", "requests-per-day"]), None);
    }
}
