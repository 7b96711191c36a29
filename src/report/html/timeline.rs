//! The timeline: a drawing with a lane for each pool and each node.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::axis::{Axis, Piece};
use super::escape::line;
use crate::model::{NodeId, PoolId};
use crate::report::history::{Span, SpanKind, word};
use crate::report::text::duration;
use crate::report::view::NodeView;

/// Where the lanes begin; names stand before it.
const LEFT: f64 = 230.0;
/// Width of the lanes.
const WIDTH: f64 = 890.0;
/// Characters of a lane's name.
const NAME: usize = 34;
/// Height of a lane.
const LANE: f64 = 18.0;
/// Lanes of one kind that are drawn.
const LANES: usize = 300;
/// Nothing is narrower: an instant must be seen.
const THIN: f64 = 2.5;
/// Labels of the axis stand no closer.
const LABEL: f64 = 64.0;

struct Lane<'a> {
    name: String,
    title: &'a str,
    spans: Vec<&'a Span>,
}

/// The drawing; nothing while no attempt was made.
pub(super) fn timeline(spans: &[Span], nodes: &[NodeView]) -> String {
    let Some(axis) = Axis::new(spans, WIDTH) else { return String::new() };
    let mut of_pools: BTreeMap<&PoolId, Vec<&Span>> = BTreeMap::new();
    let mut of_nodes: BTreeMap<&NodeId, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        of_pools.entry(&span.pool).or_default().push(span);
        if let Some((node, _)) = &span.attempt {
            of_nodes.entry(node).or_default().push(span);
        }
    }
    let pools: Vec<Lane> = of_pools
        .into_iter()
        .map(|(id, spans)| Lane { name: tail(&id.0), title: &id.0, spans })
        .collect();
    let nodes: Vec<Lane> = nodes
        .iter()
        .filter_map(|node| {
            let spans = of_nodes.remove(&node.id)?;
            Some(Lane { name: format!("{} {}", node.id, node.title), title: &node.title, spans })
        })
        .collect();
    let mut body = String::new();
    let mut y = 34.0;
    for (heading, lanes) in [("Pools", &pools), ("Nodes", &nodes)] {
        let _ =
            writeln!(body, "<text class=\"head\" x=\"0\" y=\"{:.0}\">{heading}</text>", y + 12.0);
        y += LANE;
        for lane in lanes.iter().take(LANES) {
            draw(&mut body, lane, &axis, y);
            y += LANE;
        }
        if lanes.len() > LANES {
            let more = lanes.len() - LANES;
            let _ = writeln!(body, "<text x=\"8\" y=\"{:.0}\">… and {more} more</text>", y + 12.0);
            y += LANE;
        }
        y += 8.0;
    }
    let (right, bottom) = (LEFT + WIDTH + 10.0, y);
    format!(
        "<svg role=\"img\" aria-label=\"Timeline of attempts\" viewBox=\"0 0 {right:.0} {bottom:.0}\">\n\
         <defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect class=\"hatch\" width=\"2.5\" height=\"6\"/></pattern></defs>\n\
         {}{body}</svg>\n{}",
        axis_lines(&axis, bottom),
        legend()
    )
}

/// Classes of the drawing and what they mean.
const LEGEND: [(&str, &str); 6] = [
    ("good", "accepted"),
    ("same", "nothing to change"),
    ("bad", "failed check or result"),
    ("world", "limit, network, time"),
    ("busy", "at work, or given back"),
    ("waits", "pool waits or is out"),
];

fn legend() -> String {
    let entries =
        LEGEND.map(|(class, what)| format!("<span><i class=\"{class}\"></i> {what}</span>\n"));
    format!("<p class=\"legend\">{}Shaded: nothing worked; not to scale.</p>\n", entries.concat())
}

fn draw(body: &mut String, lane: &Lane<'_>, axis: &Axis, y: f64) {
    let _ = writeln!(
        body,
        "<text x=\"8\" y=\"{:.0}\">{}<title>{}</title></text>",
        y + 12.0,
        line(&lane.name, NAME),
        line(lane.title, 300),
    );
    // Rests lie under attempts.
    let (rests, attempts): (Vec<&Span>, Vec<&Span>) =
        lane.spans.iter().partition(|s| s.attempt.is_none());
    for span in rests.into_iter().chain(attempts) {
        let (from, to) = (axis.x(span.from), axis.x(span.to));
        let _ = writeln!(
            body,
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"{:.0}\" rx=\"2\"><title>{}</title></rect>",
            class(span.kind),
            LEFT + from.min(WIDTH - THIN),
            y + 2.0,
            (to - from).max(THIN),
            LANE - 5.0,
            line(&tooltip(span), 300),
        );
    }
}

/// Ids of pools differ at their end.
fn tail(id: &str) -> String {
    let long = id.chars().count().saturating_sub(NAME);
    if long == 0 {
        id.to_owned()
    } else {
        id.chars().skip(long + 1).fold("…".to_owned(), |s, c| s + c.encode_utf8(&mut [0; 4]))
    }
}

fn class(kind: SpanKind) -> &'static str {
    use crate::model::Outcome as O;
    match kind {
        SpanKind::Accepted => "good",
        SpanKind::Satisfied => "same",
        SpanKind::Failed(
            O::InvalidResult | O::Error | O::BadRequest | O::ContentFiltered | O::Success,
        ) => "bad",
        SpanKind::Failed(_) => "world",
        SpanKind::Released | SpanKind::Running => "busy",
        SpanKind::Waits(_) | SpanKind::Out(_) => "waits",
    }
}

fn tooltip(span: &Span) -> String {
    let took = u64::try_from(span.to.as_millisecond() - span.from.as_millisecond()).unwrap_or(0);
    let what = match span.kind {
        SpanKind::Accepted => "accepted".to_owned(),
        SpanKind::Satisfied => "nothing to change".to_owned(),
        SpanKind::Failed(outcome) => word(&outcome),
        SpanKind::Released => "given back".to_owned(),
        SpanKind::Running => "at work".to_owned(),
        SpanKind::Waits(outcome) => format!("waits: {}", word(&outcome)),
        SpanKind::Out(outcome) => format!("out: {}", word(&outcome)),
    };
    let who = match &span.attempt {
        Some((node, number)) => format!("{node}, attempt {number}, {}", span.pool),
        None => span.pool.to_string(),
    };
    format!(
        "{who}: {what}, {} from {}",
        duration(took),
        span.from.strftime("%Y-%m-%d %H:%M:%S UTC")
    )
}

/// Grid and times, once for each stretch and wherever there is room.
fn axis_lines(axis: &Axis, bottom: f64) -> String {
    let mut text = String::new();
    let mut free = 0.0;
    let (mut day, mut last) = (String::new(), String::new());
    for piece in &axis.pieces {
        if piece.gap {
            let _ = writeln!(
                text,
                "<rect class=\"gap\" x=\"{:.1}\" y=\"22\" width=\"{:.1}\" height=\"{:.0}\"/>",
                LEFT + piece.x,
                piece.width,
                bottom - 22.0
            );
            continue;
        }
        for (x, at) in ticks(piece) {
            let label = at.strftime("%H:%M:%S").to_string();
            if x < free || label == last {
                continue;
            }
            let date = at.strftime("%b %d ").to_string();
            let shown = if date == day { "" } else { &date };
            free = x + if shown.is_empty() { LABEL } else { LABEL * 1.5 };
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{0:.1}\" y1=\"22\" x2=\"{0:.1}\" y2=\"{bottom:.0}\"/>\
                 <text class=\"time\" x=\"{0:.1}\" y=\"16\">{shown}{label}</text>",
                LEFT + x,
            );
            (day, last) = (date, label);
        }
    }
    text
}

/// The beginning of a stretch, and places inside it where there is room.
fn ticks(piece: &Piece) -> Vec<(f64, Timestamp)> {
    #[expect(clippy::cast_possible_truncation, reason = "a width of pixels")]
    let steps = ((piece.width / 110.0) as i64).max(1);
    let length = piece.to.as_millisecond() - piece.from.as_millisecond();
    (0..steps)
        .filter_map(|i| {
            let at = Timestamp::from_millisecond(piece.from.as_millisecond() + length * i / steps);
            #[expect(clippy::cast_precision_loss, reason = "a few steps")]
            let part = i as f64 / steps as f64;
            Some((piece.x + piece.width * part, at.ok()?))
        })
        .collect()
}
