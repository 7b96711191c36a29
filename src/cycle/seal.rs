//! Who made a result. Each claim of a grant has a key pair of its own (Ed25519): the job that the
//! node was handed to gets the signing half, and the ledger, which everybody may read, only the
//! other. So a result is known to come from its job by the ledger alone: whoever reads the ledger,
//! earlier results or another node's hand-out can't make one.
//!
//! A seal says who, never that the content is good: results are judged as hostile input.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::CycleError;

/// Bytes of a key seed (RFC 8032, section 5.1.5).
const SEED: usize = 32;

/// A new key: the signing half for the job, the verifying half for the ledger.
pub(super) fn new_key() -> Result<(String, String), CycleError> {
    let mut seed = [0_u8; SEED];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| CycleError::Internal("the system gave no random bytes".to_owned()))?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
        .map_err(|e| CycleError::Internal(format!("a key can't be made: {e}")))?;
    Ok((BASE64.encode(seed), BASE64.encode(pair.public_key())))
}

/// Signs; `None` when the text is no key.
pub(super) fn sign(key: &str, message: &[u8]) -> Option<String> {
    let seed = BASE64.decode(key.trim()).ok()?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
    Some(BASE64.encode(pair.sign(message)))
}

/// Whether the job that holds the other half signed this.
pub(super) fn holds(verify_key: &str, message: &[u8], signature: &str) -> bool {
    let (Ok(key), Ok(signature)) = (BASE64.decode(verify_key), BASE64.decode(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, key).verify(message, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{holds, new_key, sign};

    #[test]
    fn only_the_other_half_signs() {
        let (key, public) = new_key().unwrap();
        let (other, _) = new_key().unwrap();
        let seal = sign(&key, b"content").unwrap();
        assert!(holds(&public, b"content", &seal));
        assert!(!holds(&public, b"Content", &seal), "of this content only");
        assert!(!holds(&public, b"content", &sign(&other, b"content").unwrap()));
        assert!(!holds(&public, b"content", &public), "a key is no seal");
        for forged in ["", "AAAA", "*"] {
            assert!(!holds(&public, b"content", forged), "{forged}");
            assert!(!holds(forged, b"content", &seal), "{forged}");
        }
        assert_eq!(sign("no key", b"content"), None);
        assert_eq!(sign(&public[1..], b"content"), None);
    }
}
