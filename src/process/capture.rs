//! Reading a stream without keeping all of it.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::Captured;

/// Keeps the first and the last half of its cap.
#[derive(Debug)]
pub(super) struct HeadTail {
    cap: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl HeadTail {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = (self.cap / 2).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        bytes = &bytes[room..];
        let keep = self.cap - self.cap / 2;
        if bytes.len() > keep {
            bytes = &bytes[bytes.len() - keep..];
        }
        let excess = (self.tail.len() + bytes.len()).saturating_sub(keep);
        self.tail.drain(..excess);
        self.tail.extend(bytes);
    }

    pub(super) fn finish(&mut self) -> Captured {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let missing = self.total - kept;
        let mut bytes = std::mem::take(&mut self.head);
        if missing > 0 {
            bytes.extend_from_slice(format!("\n[... {missing} bytes left out ...]\n").as_bytes());
        }
        bytes.extend(std::mem::take(&mut self.tail));
        Captured { bytes, total: self.total, truncated: missing > 0 }
    }
}

/// Reads to the end (or until dropped), into `kept`.
pub(super) async fn read(
    mut stream: impl AsyncRead + Unpin,
    kept: std::sync::Arc<std::sync::Mutex<HeadTail>>,
) {
    let mut buffer = vec![0_u8; 64 << 10];
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::HeadTail;

    #[test]
    fn the_middle_is_dropped_and_said_so() {
        let mut kept = HeadTail::new(10);
        for chunk in [&b"abc"[..], b"defgh", b"ijklmnopqrstuvw", b"xyz"] {
            kept.push(chunk);
        }
        let captured = kept.finish();
        assert_eq!(captured.bytes, b"abcde\n[... 16 bytes left out ...]\nvwxyz");
        assert_eq!((captured.total, captured.truncated), (26, true));
    }

    #[test]
    fn what_fits_is_whole() {
        let mut kept = HeadTail::new(5);
        kept.push(b"ab");
        kept.push(b"cde");
        let captured = kept.finish();
        assert_eq!((captured.bytes.as_slice(), captured.truncated), (&b"abcde"[..], false));
    }
}
