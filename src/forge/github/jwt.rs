//! The JWT by which a GitHub App proves itself.
//!
//! Source: GitHub's "Generating a JSON Web Token (JWT) for a GitHub App": RS256, issued in the
//! past to allow for clock drift, valid for at most ten minutes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

/// Seconds that our clock may be ahead of GitHub's.
const DRIFT: i64 = 60;
/// Seconds a JWT is good for; with the drift below GitHub's ten minutes.
const LIFE: i64 = 8 * 60;

/// Reads a PEM key, PKCS#1 or PKCS#8. Newlines written as `\n`, as in one-line variables, are
/// understood.
///
/// # Errors
/// What is wrong with it; never any of its content.
pub(super) fn read_key(pem: &SecretString) -> Result<RsaKeyPair, &'static str> {
    let text = pem.expose_secret().replace("\\n", "\n");
    let mut kind = None;
    let mut encoded = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("-----BEGIN ") {
            kind = Some(name.trim_end_matches('-').to_owned());
        } else if line.starts_with("-----END ") {
            break;
        } else if kind.is_some() {
            encoded.push_str(line);
        }
    }
    let der = STANDARD.decode(encoded).map_err(|_| "it is no PEM")?;
    let key = match kind.as_deref() {
        Some("RSA PRIVATE KEY") => RsaKeyPair::from_der(&der),
        Some("PRIVATE KEY") => RsaKeyPair::from_pkcs8(&der),
        Some(_) => return Err("it is no RSA private key in PEM"),
        None => return Err("it is no PEM"),
    };
    key.map_err(|_| "it is no usable RSA private key")
}

/// A JWT that says "app `app_id`, now".
pub(super) fn sign(
    key: &RsaKeyPair,
    app_id: &str,
    now: Timestamp,
) -> Result<SecretString, &'static str> {
    let header = json!({"alg": "RS256", "typ": "JWT"});
    let claims =
        json!({"iat": now.as_second() - DRIFT, "exp": now.as_second() + LIFE, "iss": app_id});
    let encode = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "signing failed")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
}

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    const PKCS1: &str = include_str!("../../../tests/data/github/app-key-pkcs1.pem");
    const PKCS8: &str = include_str!("../../../tests/data/github/app-key-pkcs8.pem");

    #[test]
    fn both_forms_of_a_key_sign_what_its_public_half_verifies() {
        let one_line = PKCS1.replace('\n', "\\n");
        for pem in [PKCS1, PKCS8, &one_line] {
            let key = read_key(&pem.into()).unwrap();
            let token = sign(&key, "123", Timestamp::from_second(1_800_000_000).unwrap()).unwrap();
            let (signed, signature) = token.expose_secret().rsplit_once('.').unwrap();
            let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
            assert_eq!(
                String::from_utf8(claims).unwrap(),
                r#"{"iat":1799999940,"exp":1800000480,"iss":"123"}"#
            );
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref())
                .verify(signed.as_bytes(), &signature)
                .unwrap();
        }
    }

    #[test]
    fn a_broken_key_is_refused_without_showing_it() {
        for bad in [
            "",
            "secret",
            "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----\n!!!\n-----END RSA PRIVATE KEY-----",
        ] {
            let reason = read_key(&bad.into()).err().unwrap();
            assert!(!reason.contains("secret") && !reason.contains("AAAA"));
        }
    }
}
