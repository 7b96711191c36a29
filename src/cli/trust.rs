//! The input `ca-bundle`: certificates of a company's own authority, for every connection of this
//! process and of git. What makes those connections reads variables, so the process is started anew
//! with them: before there is a thread, and without the input.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Failure;
use crate::actions::Runtime;

/// Where systems keep the certificates that everybody trusts.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const INPUTS: [&str; 2] = ["INPUT_CA-BUNDLE", "INPUT_CA_BUNDLE"];

/// Becomes a process that trusts the bundle too, if one is given.
///
/// # Errors
/// When the bundle can't be used.
pub fn trust_bundle() -> Result<(), Failure> {
    let var = |name: &str| std::env::var(name).ok();
    let runtime = Runtime::from_env(&var);
    let Some(given) = runtime.input("ca-bundle").filter(|_| runtime.on_actions) else {
        return Ok(());
    };
    let path = runtime.workspace.clone().unwrap_or_default().join(given);
    let wrong = |why: String| {
        Failure::usage(format!("the input ca-bundle, {}, can't be used", path.display()))
            .because(why)
            .remedy("name a file of the workspace that holds certificates as PEM")
    };
    let bundle = std::fs::read(&path).map_err(|e| wrong(e.to_string()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&bundle).map_err(|e| wrong(e.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    let system = var("SSL_CERT_FILE").into_iter().chain(SYSTEM.map(str::to_owned));
    let system = system.map(PathBuf::from).find(|path| path.is_file());
    let folder = runtime.temp.filter(|temp| temp.is_dir()).unwrap_or_else(std::env::temp_dir);
    let both = joined(&bundle, system.as_deref(), &folder)
        .map_err(|e| Failure::failed("certificates can't be written").because(e))?;
    let mut again = Command::new("/proc/self/exe");
    again
        .args(std::env::args_os().skip(1))
        .env("SSL_CERT_FILE", &both)
        .env("GIT_SSL_CAINFO", &both);
    for input in INPUTS {
        again.env_remove(input);
    }
    Err(Failure::failed("overhaul can't be started anew").because(again.exec()))
}

/// The certificates that everybody trusts and the bundle's, as one file.
fn joined(bundle: &[u8], system: Option<&Path>, folder: &Path) -> Result<PathBuf, std::io::Error> {
    let mut all = system.map(std::fs::read).transpose()?.unwrap_or_default();
    all.push(b'\n');
    all.extend_from_slice(bundle);
    let mut file =
        tempfile::Builder::new().prefix("overhaul-ca-").suffix(".pem").tempfile_in(folder)?;
    file.write_all(&all)?;
    let (_, path) = file.keep().map_err(|e| e.error)?;
    Ok(path)
}
