//! The layout that every store shares, so that a ledger can move between them:
//! `<run>/events/<sequence>-<cycle>.ndjson` (written once), `<run>/blobs/<name>` (written once)
//! and `<run>/README.md` for people.

use std::fmt::Write as _;

use crate::ledger::{Event, EventKind};
use crate::model::{CycleId, RunId};

use super::StoreError;

/// Folder of the segments inside a run's folder.
pub(super) const EVENTS: &str = "events";
/// Folder of the blobs inside a run's folder.
pub(super) const BLOBS: &str = "blobs";
/// The page for people inside a run's folder.
pub(super) const README: &str = "README.md";

/// Largest segment that is read or written, bytes. One cycle writes far less; more is not ours.
pub(super) const SEGMENT_LIMIT: usize = 32 * 1024 * 1024;
/// Largest blob, bytes: a plan of 10 000 nodes with its findings is about 20 MB.
pub(super) const BLOB_LIMIT: usize = 64 * 1024 * 1024;

/// The name of a segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentName {
    /// Counted from 1, without gaps.
    pub sequence: u64,
    /// Who wrote it.
    pub cycle: CycleId,
}

impl SegmentName {
    /// Reads `<sequence>-<cycle>.ndjson`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (digits, cycle) = name.strip_suffix(".ndjson")?.split_once('-')?;
        if digits.len() < 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(Self { sequence: digits.parse().ok()?, cycle: CycleId::new(cycle).ok()? })
    }

    /// The segment after `last` for these events; `None` when there is nothing to write.
    pub(super) fn next(last: u64, events: &[Event]) -> Option<Self> {
        events.first().map(|e| Self { sequence: last.saturating_add(1), cycle: e.cycle.clone() })
    }

    /// The file name; padded so that the order of names is the order of events.
    pub(super) fn file(&self) -> String {
        format!("{:08}-{}.ndjson", self.sequence, self.cycle)
    }
}

/// Checks that the sequences run 1, 2, 3, ... : a gap is a lost segment and a repeated number two
/// writers without a winner. Returns them in order.
pub(super) fn in_order<T>(
    place: &str,
    mut segments: Vec<(SegmentName, T)>,
) -> Result<Vec<(SegmentName, T)>, StoreError> {
    segments.sort_by(|a, b| a.0.cmp(&b.0));
    for (expected, (name, _)) in (1u64..).zip(&segments) {
        if name.sequence != expected {
            return Err(foreign(
                place,
                format!("expected segment {expected}, found {}", name.file()),
            ));
        }
    }
    Ok(segments)
}

/// One JSON object a line.
pub(super) fn encode(place: &str, events: &[Event]) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    for event in events {
        if event.kind == EventKind::Unknown {
            return Err(foreign(place, "an event of a newer version can't be written".to_owned()));
        }
        serde_json::to_writer(&mut bytes, event)
            .map_err(|e| foreign(place, format!("an event can't be written: {e}")))?;
        bytes.push(b'\n');
    }
    if bytes.len() > SEGMENT_LIMIT {
        return Err(foreign(place, format!("a segment of {} bytes is too large", bytes.len())));
    }
    Ok(bytes)
}

/// Reads a segment; an error names the line.
pub(super) fn decode(place: &str, bytes: &[u8]) -> Result<Vec<Event>, StoreError> {
    if bytes.len() > SEGMENT_LIMIT {
        return Err(foreign(place, format!("a segment of {} bytes is too large", bytes.len())));
    }
    let Some(body) = bytes.strip_suffix(b"\n") else {
        let line = bytes.split(|b| *b == b'\n').count();
        return Err(foreign(place, format!("line {line}: the last line is cut off")));
    };
    (1..)
        .zip(body.split(|b| *b == b'\n'))
        .map(|(line, text)| {
            serde_json::from_slice(text)
                .map_err(|e| foreign(place, format!("line {line}: not an event: {e}")))
        })
        .collect()
}

/// Blob names are ours, but they may carry a digest or id that came from outside: one safe path
/// component, nothing else.
pub(super) fn is_blob_name(name: &str) -> bool {
    name.len() <= 120
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Refuses blobs that no store could keep.
pub(super) fn check_blobs(place: &str, blobs: &[(String, Vec<u8>)]) -> Result<(), StoreError> {
    for (name, bytes) in blobs {
        if !is_blob_name(name) {
            return Err(foreign(place, format!("{name:?} is not a safe blob name")));
        }
        if bytes.len() > BLOB_LIMIT {
            return Err(foreign(
                place,
                format!("blob {name} of {} bytes is too large", bytes.len()),
            ));
        }
    }
    Ok(())
}

/// A blob is written once: the same content again is fine, other content never replaces it.
pub(super) fn changed_blob(place: &str, name: &str) -> StoreError {
    foreign(place, format!("blob {name} is there already with other content"))
}

/// Shorthand.
pub(super) fn foreign(place: &str, reason: String) -> StoreError {
    StoreError::Foreign { place: place.to_owned(), reason }
}

/// The page for people who open the run's folder. Its cost does not depend on the history.
pub(super) fn readme(run: &RunId, last: &SegmentName, events: &[Event]) -> String {
    let mut text = format!(
        "# Run {run}\n\n\
         This folder is the state of an `overhaul` run. `events/` holds what happened, one JSON \
         object a line, in files that are written once; `blobs/` holds plans and receipts by \
         digest. Everything else is computed from them: `overhaul status --run-id {run}` shows \
         it.\n\n\
         Please do not edit or delete files here: a changed file is refused, a missing one stops \
         the run.\n\n\
         Last entry: segment {}, written by cycle `{}`.\n",
        last.sequence, last.cycle
    );
    if let Some(event) = events.last() {
        let _ = writeln!(text, "Last event at {}.", event.at);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{SegmentName, decode, in_order, is_blob_name};

    #[test]
    fn segment_names_round_trip_and_reject_strangers() {
        let name = SegmentName::parse("00000012-c-20261130.1.ndjson").unwrap();
        assert_eq!((name.sequence, name.cycle.as_str()), (12, "c-20261130.1"));
        assert_eq!(name.file(), "00000012-c-20261130.1.ndjson");
        for bad in ["1-c.ndjson", "00000001-.ndjson", "00000001.ndjson", "0000000x-c.ndjson"] {
            assert_eq!(SegmentName::parse(bad), None, "{bad}");
        }
        assert_eq!(SegmentName::parse("99999999999999999999999-c.ndjson"), None);
    }

    #[test]
    fn gaps_and_twins_are_foreign() {
        let name = |n| (SegmentName::parse(&format!("{n:08}-c.ndjson")).unwrap(), ());
        assert!(in_order("x", vec![name(2), name(1)]).is_ok());
        assert!(in_order("x", vec![name(1), name(3)]).is_err());
        let twin = (SegmentName::parse("00000001-d.ndjson").unwrap(), ());
        assert!(in_order("x", vec![name(1), twin]).is_err());
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = decode("events/1", b"{\"v\":1}\n").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        let error = decode("events/1", b"{}\n{\"v\"").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(decode("events/1", b"").is_err());
    }

    #[test]
    fn blob_names_are_one_component() {
        assert!(is_blob_name("plan-0123abc.json"));
        for bad in ["", ".hidden", "../x", "a/b", "a\0b", "a b", &"x".repeat(121)] {
            assert!(!is_blob_name(bad), "{bad:?}");
        }
    }
}
