//! A result on its way between two jobs, as one file:
//!
//! ```text
//! overhaul-result 1 <bytes of the manifest> <bytes of the content> <seal>\n
//! <manifest, JSON><content: the changed files' blobs, one after the other>
//! ```
//! The seal signs manifest and content with the key of the node's claim. Sizes are known before
//! anything is read, and nothing in it is inflated or written to a path.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CycleError, GrantedNode, seal};
use crate::backends::WorkerResult;
use crate::model::{
    AttemptNumber, Classification, GrantId, NodeId, Outcome, OwnerToken, RunId, Usage,
};
use crate::workspace::{Piece, TakeLimits};

/// First word of the file, with the version of the format.
const MAGIC: &str = "overhaul-result 1";

/// Longest first line, bytes: the magic, two numbers and a seal of 86 characters.
const MAX_LINE: usize = 200;

/// Largest manifest, bytes: 20 000 paths of 200 bytes.
const MAX_MANIFEST: u64 = 6 << 20;

/// Most that is kept of a worker's log, bytes.
const MAX_LOG: usize = 256 << 10;

/// How the attempt ended, by the job that did it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    /// The change is there and passed every check in the job.
    Done,
    /// There was nothing to change.
    Satisfied,
    /// Not acceptable.
    Refused {
        /// How.
        outcome: Outcome,
        /// Why.
        detail: String,
    },
}

/// Everything but the content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Manifest {
    pub run: RunId,
    pub grant: GrantId,
    pub node: NodeId,
    pub attempt: AttemptNumber,
    pub owner: OwnerToken,
    /// Commit that the work started from.
    pub base: String,
    /// The tree that the pieces make of the base's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    #[serde(default)]
    pub pieces: Vec<Piece>,
    pub said: Said,
    /// How the backend's part ended.
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<WorkerResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<Classification>,
    /// Until when our own windows or budgets let no request through, where that ended the attempt:
    /// its backend has said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<Timestamp>,
    /// Which key the backend refused: only this job has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_seen: Option<String>,
    /// For people; nothing reads it.
    #[serde(default)]
    pub log: String,
}

/// A file that was read, its seal not yet looked at.
#[derive(Debug)]
pub(super) struct Bundle {
    pub manifest: Manifest,
    pub content: Vec<u8>,
    pub seal: String,
    digest: Vec<u8>,
}

/// What is signed: the digests, so that neither part can pass as the other.
fn message(manifest: &[u8], content: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.as_bytes().to_vec();
    message.extend(Sha256::digest(manifest));
    message.extend(Sha256::digest(content));
    message
}

/// Writes the file of a handed-out node into `folder`, whole or not at all, and gives its path.
pub(super) fn write(
    folder: &Path,
    granted: &GrantedNode,
    mut manifest: Manifest,
    content: &[u8],
) -> Result<std::path::PathBuf, CycleError> {
    let mut end = manifest.log.len().min(MAX_LOG);
    while !manifest.log.is_char_boundary(end) {
        end -= 1;
    }
    manifest.log.truncate(end);
    let json = serde_json::to_vec(&manifest)
        .map_err(|e| CycleError::Internal(format!("the result can't be written: {e}")))?;
    let seal = seal::sign(&granted.key, &message(&json, content)).ok_or_else(|| {
        CycleError::Refused(
            "the key of the hand-out is no key: take it as the grant gave it".into(),
        )
    })?;
    let mut bytes = format!("{MAGIC} {} {} {seal}\n", json.len(), content.len()).into_bytes();
    bytes.extend(json);
    bytes.extend(content);
    let path = folder.join(file_name(&granted.bundle));
    let failed =
        |e| CycleError::io(format!("the result can't be written to {}", path.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let part = path.with_extension("part");
    std::fs::write(&part, bytes).map_err(failed)?;
    std::fs::rename(&part, &path).map_err(failed)?;
    Ok(path)
}

/// Name of the file of a result.
pub(super) fn file_name(bundle: &str) -> String {
    format!("{bundle}.bundle")
}

/// Reads a file that anyone may have made; the reason is for people.
pub(super) fn read(path: &Path, limits: &TakeLimits) -> Result<Bundle, String> {
    let open = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags((nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits())
        .open(path);
    let mut file = open.map_err(|e| format!("it can't be opened: {e}"))?;
    let meta = file.metadata().map_err(|e| format!("it can't be read: {e}"))?;
    if !meta.is_file() {
        return Err("it is no plain file".to_owned());
    }
    let most = MAX_LINE as u64 + MAX_MANIFEST + limits.total_bytes;
    if meta.len() > most {
        return Err(format!("it has {} bytes; at most {most} are read", meta.len()));
    }
    let (manifest_bytes, content_bytes, seal) = first_line(&mut file)?;
    if manifest_bytes > MAX_MANIFEST || content_bytes > limits.total_bytes {
        return Err(format!("it lists {manifest_bytes} and {content_bytes} bytes: too many"));
    }
    let manifest = exactly(&mut file, manifest_bytes)?;
    let content = exactly(&mut file, content_bytes)?;
    if file.read(&mut [0]).map_err(|e| format!("it can't be read: {e}"))? != 0 {
        return Err("it is longer than it says".to_owned());
    }
    let digest = message(&manifest, &content);
    let manifest = serde_json::from_slice(&manifest)
        .map_err(|e| format!("its manifest is not of this form: {e}"))?;
    Ok(Bundle { manifest, content, seal, digest })
}

impl Bundle {
    /// Whether it comes from the job that holds the other half of this key.
    pub(super) fn is_from(&self, verify_key: &str) -> bool {
        seal::holds(verify_key, &self.digest, &self.seal)
    }
}

fn first_line(file: &mut File) -> Result<(u64, u64, String), String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < MAX_LINE {
        match file.read(&mut byte).map_err(|e| format!("it can't be read: {e}"))? {
            0 if line.is_empty() => return Err("it is empty".to_owned()),
            0 => break,
            _ if byte == *b"\n" => {
                let text = String::from_utf8_lossy(&line).into_owned();
                return parse_line(&text).ok_or_else(|| "it is no result of ours".to_owned());
            }
            _ => line.extend(byte),
        }
    }
    Err("it is no result of ours".to_owned())
}

fn parse_line(line: &str) -> Option<(u64, u64, String)> {
    let mut words = line.strip_prefix(MAGIC)?.strip_prefix(' ')?.split(' ');
    let numbers = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let seal = words.next()?.to_owned();
    words.next().is_none().then_some((numbers.0, numbers.1, seal))
}

fn exactly(file: &mut File, bytes: u64) -> Result<Vec<u8>, String> {
    let mut found = Vec::new();
    file.take(bytes).read_to_end(&mut found).map_err(|e| format!("it can't be read: {e}"))?;
    if found.len() as u64 == bytes { Ok(found) } else { Err("it is cut off".to_owned()) }
}
