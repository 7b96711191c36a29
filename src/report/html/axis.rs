//! From time to place. A run works for minutes and waits for days: long stretches in which nothing
//! worked are drawn short, and marked.

use jiff::Timestamp;

use crate::report::history::Span;

/// Width of a stretch in which nothing worked.
const GAP: f64 = 26.0;
/// What all of them may take of the whole.
const GAPS: f64 = 0.4;

/// A stretch of the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub from: Timestamp,
    pub to: Timestamp,
    pub x: f64,
    pub width: f64,
    /// Not to scale.
    pub gap: bool,
}

/// The axis, in pieces that follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub pieces: Vec<Piece>,
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run are far below 2^52")]
fn millis(from: Timestamp, to: Timestamp) -> f64 {
    (to.as_millisecond() - from.as_millisecond()).max(0) as f64
}

impl Axis {
    /// An axis from 0 to `width` for the attempts among `spans`; `None` without any.
    pub(super) fn new(spans: &[Span], width: f64) -> Option<Self> {
        let mut busy: Vec<(Timestamp, Timestamp)> =
            spans.iter().filter(|s| s.attempt.is_some()).map(|s| (s.from, s.to)).collect();
        busy.sort_unstable();
        let first = busy.first()?;
        let mut stretches = vec![*first];
        let total: f64 = busy.iter().map(|(from, to)| millis(*from, *to)).sum();
        // A pause for breath is drawn as it is.
        let breath = (total / 5.0).max(2_000.0);
        for (from, to) in busy {
            match stretches.last_mut() {
                Some(last) if millis(last.1, from) <= breath => last.1 = last.1.max(to),
                _ => stretches.push((from, to)),
            }
        }
        Some(Self { pieces: Self::laid_out(&stretches, width) })
    }

    fn laid_out(stretches: &[(Timestamp, Timestamp)], width: f64) -> Vec<Piece> {
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let (worked, gaps) = (stretches.len() as f64, stretches.len().saturating_sub(1) as f64);
        let gap = if gaps > 0.0 { GAP.min(width * GAPS / gaps) } else { 0.0 };
        let room = width - gap * gaps;
        let total: f64 = stretches.iter().map(|(from, to)| millis(*from, *to)).sum();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut x = 0.0;
        for (from, to) in stretches {
            if let Some(last) = pieces.last() {
                let (before, at) = (last.to, x);
                pieces.push(Piece { from: before, to: *from, x: at, width: gap, gap: true });
                x += gap;
            }
            // Half by time and half alike, so that a short cycle is seen beside a long one.
            let share = if total > 0.0 { millis(*from, *to) / total } else { 1.0 / worked };
            let piece = room * (share + 1.0 / worked) / 2.0;
            pieces.push(Piece { from: *from, to: *to, x, width: piece, gap: false });
            x += piece;
        }
        pieces
    }

    /// Where a time is; what is outside is at the end.
    pub(super) fn x(&self, at: Timestamp) -> f64 {
        let piece = self.pieces.iter().find(|p| at <= p.to).or(self.pieces.last());
        let Some(piece) = piece else { return 0.0 };
        let length = millis(piece.from, piece.to);
        let part = if length > 0.0 { millis(piece.from, at) / length } else { 0.0 };
        piece.x + piece.width * part.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Axis;
    use crate::model::{NodeId, PoolId};
    use crate::report::history::{Span, SpanKind};
    use crate::report::sample::at;

    fn span(from: &str, to: &str) -> Span {
        Span {
            from: at(from),
            to: at(to),
            pool: PoolId::new("p"),
            attempt: Some((NodeId::new("N-001").unwrap(), 1)),
            kind: SpanKind::Accepted,
        }
    }

    #[test]
    fn days_of_waiting_are_short_and_order_is_kept() {
        let spans = [
            span("2026-11-30T10:00:00Z", "2026-11-30T10:10:00Z"),
            span("2026-11-30T10:05:00Z", "2026-11-30T10:12:00Z"),
            span("2026-12-03T10:00:00Z", "2026-12-03T10:12:00Z"),
        ];
        let axis = Axis::new(&spans, 1_000.0).unwrap();
        let gaps: Vec<bool> = axis.pieces.iter().map(|p| p.gap).collect();
        assert_eq!(gaps, [false, true, false]);
        let end: f64 = axis.pieces.iter().map(|p| p.width).sum();
        assert!((end - 1_000.0).abs() < 0.001, "{end}");
        let places: Vec<f64> = [
            "2026-11-30T09:00:00Z",
            "2026-11-30T10:06:00Z",
            "2026-12-01T10:00:00Z",
            "2026-12-03T10:06:00Z",
            "2027-01-01T00:00:00Z",
        ]
        .map(|t| axis.x(at(t)))
        .to_vec();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!((places[0], places[4]), (0.0, 1_000.0));
    }

    #[test]
    fn a_thousand_cycles_and_an_instant_have_an_axis() {
        let mut spans = Vec::new();
        for day in 0..1_000 {
            let from = at("2026-01-01T00:00:00Z") + jiff::SignedDuration::from_hours(24 * day);
            let mut one = span("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
            (one.from, one.to) = (from, from);
            spans.push(one);
        }
        let axis = Axis::new(&spans, 900.0).unwrap();
        assert!(axis.pieces.iter().all(|p| p.width.is_finite() && p.width >= 0.0));
        assert!(Axis::new(&[], 900.0).is_none());
    }
}
