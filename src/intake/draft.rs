//! What is shared by the formats: a finding whose places are not settled yet.

use std::collections::HashSet;

use super::uri::Located;
use super::{IntakeContext, PathKind, finding_id};
use crate::model::{DropReason, Finding, IdError, Place, RepoPath};

/// Most places that one finding keeps; real reports have findings about a thousand files.
const MAX_PLACES: usize = 4_000;

/// A place as the report gives it.
pub(super) struct Spot {
    pub at: Located,
    pub line: Option<u32>,
    pub end_line: Option<u32>,
    pub snippet: Option<String>,
    pub symbol: Option<String>,
}

/// A finding and its places, still to be told apart.
pub(super) struct Draft {
    /// Everything but places, id and fingerprint.
    pub finding: Finding,
    /// In the report's order.
    pub spots: Vec<Spot>,
}

/// Decides the guesses, numbers the findings and drops what has no editable place.
pub(super) fn settle(drafts: Vec<Draft>, ctx: &IntakeContext) -> Result<Vec<Finding>, IdError> {
    // A checkout that has none of the report's files says nothing about the others.
    let related = drafts.iter().flat_map(|d| &d.spots).any(|spot| match &spot.at {
        Located::Inside(path) => (ctx.lookup)(path.as_str()) != PathKind::Missing,
        Located::Guess(_) | Located::Outside => false,
    });
    drafts
        .into_iter()
        .enumerate()
        .map(|(index, draft)| {
            let mut finding = draft.finding;
            finding.id = finding_id(index + 1)?;
            let reported = draft.spots.first().map(|spot| spot.line);
            let mut seen = HashSet::new();
            for spot in draft.spots.into_iter().take(MAX_PLACES) {
                let path = match spot.at {
                    Located::Inside(path) => path,
                    Located::Guess(path) if !related => path,
                    Located::Guess(_) | Located::Outside => continue,
                };
                if (ctx.lookup)(path.as_str()) == PathKind::Elsewhere {
                    continue;
                }
                let place = Place {
                    path,
                    line: spot.line,
                    end_line: spot.end_line.filter(|end| Some(*end) >= spot.line).or(spot.line),
                    snippet: spot.snippet,
                    symbol: spot.symbol,
                };
                if seen.insert((
                    place.path.clone(),
                    place.line,
                    place.end_line,
                    place.symbol.clone(),
                )) {
                    finding.places.push(place);
                }
            }
            if finding.places.is_empty()
                && let Some(Some(line)) = reported
            {
                finding.extra.insert(Finding::REPORTED_LINE.to_owned(), line.into());
            }
            if finding.dropped.is_none() {
                finding.dropped = reason(&finding, reported.is_some(), ctx);
            }
            Ok(finding)
        })
        .collect()
}

fn reason(finding: &Finding, names_a_file: bool, ctx: &IntakeContext) -> Option<DropReason> {
    if finding.suppressed {
        return Some(DropReason::Suppressed);
    }
    if finding.places.is_empty() {
        return Some(if names_a_file { DropReason::OutsideCheckout } else { DropReason::NoPlace });
    }
    let all = |kind: &dyn Fn(&RepoPath) -> bool| finding.places.iter().all(|p| kind(&p.path));
    let untracked = |path: &RepoPath| (ctx.lookup)(path.as_str()) == PathKind::Untracked;
    if all(&untracked) && !finding.extra.contains_key(Finding::CREATES_FILES) {
        return Some(DropReason::Untracked);
    }
    all(&|path| is_binary(path, ctx)).then_some(DropReason::Binary)
}

/// The checkout knows; where it has no such file its name tells.
fn is_binary(path: &RepoPath, ctx: &IntakeContext) -> bool {
    const BINARY: [&str; 44] = [
        "7z", "a", "apk", "avi", "bin", "bmp", "bz2", "class", "dll", "dmg", "doc", "docx",
        "dylib", "ear", "eot", "exe", "gif", "gz", "ico", "iso", "jar", "jpeg", "jpg", "lib",
        "mp3", "mp4", "o", "obj", "pdf", "png", "pyc", "rpm", "so", "tar", "tgz", "tif", "tiff",
        "ttf", "war", "wasm", "webp", "woff", "woff2", "zip",
    ];
    match (ctx.lookup)(path.as_str()) {
        PathKind::Binary => true,
        PathKind::File | PathKind::Folder | PathKind::Elsewhere => false,
        PathKind::Missing | PathKind::Untracked => path
            .as_str()
            .rsplit_once('.')
            .is_some_and(|(_, ext)| BINARY.contains(&ext.to_ascii_lowercase().as_str())),
    }
}
