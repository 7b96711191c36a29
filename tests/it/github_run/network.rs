//! A GitHub behind a company's own certificate and its proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::{Hub, UPPER};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

fn listen(runtime: &Runtime) -> (TcpListener, u16) {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Serves what is at `to` over TLS.
fn with_tls(runtime: &Runtime, to: SocketAddr) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain = CertificateDer::pem_file_iter(data("server.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(data("server.key")).unwrap();
    let settings = rustls::ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(settings.with_single_cert(chain, key).unwrap()));
    let (listener, port) = listen(runtime);
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let Ok(mut server) = TcpStream::connect(to).await else { return };
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

/// A proxy that counts what goes through it.
fn proxy(runtime: &Runtime, count: Arc<AtomicUsize>) -> u16 {
    let (listener, port) = listen(runtime);
    runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut asked = String::new();
                let _ = client.read_line(&mut asked).await;
                let mut line = String::new();
                while client.read_line(&mut line).await.is_ok_and(|n| n > 2) {
                    line.clear();
                }
                let Some(place) = asked.strip_prefix("CONNECT ") else { return };
                let place = place.split(' ').next().unwrap_or_default();
                let Ok(mut server) = TcpStream::connect(place).await else { return };
                count.fetch_add(1, Ordering::Relaxed);
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[test]
fn a_companys_certificate_and_proxy_are_used_for_the_api_and_for_git() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let mut hub = Hub::new(&["a"], UPPER, "pull-requests:\n  labels: []\n");
    let ca = std::fs::read_to_string(data("ca.pem")).unwrap();
    hub.rig.git().commit("main", "certs/ca.pem", &ca, "The company's authority");
    hub.rig.git().commit("main", "certs/none.pem", "nothing\n", "No certificate");
    let to: SocketAddr = hub.rig.server_url().trim_start_matches("http://").parse().unwrap();
    let passed = Arc::new(AtomicUsize::new(0));
    let server = format!("https://localhost:{}", with_tls(&runtime, to));
    hub.env.insert("GITHUB_API_URL", server.clone());
    hub.env.insert("GITHUB_SERVER_URL", server);
    let proxy = proxy(&runtime, Arc::clone(&passed));
    hub.env.insert("HTTPS_PROXY", format!("http://127.0.0.1:{proxy}"));

    // Nobody vouches for it.
    let stranger = hub.end(hub.start(2_301, "schedule"));
    assert_eq!(stranger.code, Some(1), "{}", stranger.log);
    assert!(stranger.log.contains("certificate"), "{}", stranger.log);
    assert_eq!(stranger.calls, Vec::<String>::new());

    for (bundle, told) in [("none.pem", "no certificate"), ("missing.pem", "No such file")] {
        hub.env.insert("INPUT_CA-BUNDLE", format!("certs/{bundle}"));
        let wrong = hub.end(hub.start(2_302, "schedule"));
        assert_eq!(wrong.code, Some(2), "{}", wrong.log);
        assert!(wrong.log.contains(bundle) && wrong.log.contains(told), "{}", wrong.log);
        std::fs::remove_dir_all(hub.dir.path().join("job-2302")).unwrap();
    }

    hub.env.insert("INPUT_CA-BUNDLE", "certs/ca.pem".to_owned());
    let before = passed.load(Ordering::Relaxed);
    let done = hub.end(hub.start(2_303, "schedule"));
    assert_eq!(done.code, Some(0), "{}", done.log);
    assert_eq!((done.nodes("in_review"), hub.pulls().len()), (1, 1), "{}", done.log);
    assert!(!done.calls.is_empty() && passed.load(Ordering::Relaxed) >= before + 2);
    runtime.shutdown_background();
}
