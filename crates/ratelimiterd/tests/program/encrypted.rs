//! TLS: errors that `check` reports, reload on SIGHUP, and the tools over https.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use rcgen::CertifiedKey;

use crate::process::{Process, program, stderr, stdout};

/// Writes a new certificate for `localhost` and its key.
fn write_pair(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = made;
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    write_key(folder, &signing_key.serialize_pem());
}

fn write_key(folder: &Path, text: &str) {
    std::fs::write(folder.join("key.pem"), text).unwrap();
    set_mode(folder, 0o600);
}

fn set_mode(folder: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.join("key.pem"), permissions).unwrap();
}

fn encrypted(folder: &Path) -> Command {
    std::fs::write(
        folder.join("config.yaml"),
        "server: { listen_addr: '127.0.0.1:0', tls: { cert: cert.pem, key: key.pem } }\n",
    )
    .unwrap();
    let mut command = program();
    command.current_dir(folder).args(["serve", "--config", "config.yaml"]);
    command
}

/// `check` reports the error of the pair in a folder, and a server does not start on it.
fn check_refuses(folder: &Path, expected: &str) {
    let mut check = program();
    check.current_dir(folder).args(["check", "--config", "config.yaml"]);
    let output = check.output().unwrap();
    let expected = format!("config.yaml: server.tls.{expected}\n");
    assert_eq!((stdout(&output), output.status.code()), (expected.clone(), Some(1)));
    let output = encrypted(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("ratelimiterd: {expected}"));
}

/// Sends a request with curl, an independent client.
fn curl(folder: &Path, server: &Process, arguments: &[&str]) -> (bool, String) {
    curl_at(folder, server, "/healthz", arguments)
}

fn curl_at(folder: &Path, server: &Process, path: &str, arguments: &[&str]) -> (bool, String) {
    let port = server.addr.port();
    let url = format!("https://localhost:{port}{path}");
    let resolve = format!("localhost:{port}:127.0.0.1");
    let output = Command::new("curl")
        .current_dir(folder)
        .args(["-sS", "--resolve", &resolve, "--noproxy", "*", &url])
        .args(arguments)
        .output()
        .unwrap();
    (output.status.success(), stdout(&output) + &stderr(&output))
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    drop(encrypted(folder));
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let no_pem = "cert: cert.pem: contains no certificate in PEM format (a block that begins with -----BEGIN CERTIFICATE-----)";
    let block = |inside: &str| {
        format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n")
    };
    for (text, expected) in [
        ("garbage".to_owned(), no_pem),
        // A key instead of a certificate is not quoted.
        (std::fs::read_to_string(&key).unwrap(), no_pem),
        (block("!!!"), "cert: cert.pem: cannot be used: a block is not base64"),
        (block("AAAA"), "cert: cert.pem: cannot be used: a block is not an X.509 certificate"),
        (
            block("AAAA").replace("END", "AND"),
            "cert: cert.pem: cannot be used: a block has no end (-----END …-----)",
        ),
    ] {
        std::fs::write(&cert, text).unwrap();
        check_refuses(folder, expected);
    }
    std::fs::remove_file(&cert).unwrap();
    let expected = "cert: cert.pem: cannot be read: No such file or directory (os error 2)";
    check_refuses(folder, expected);
    std::fs::create_dir(&cert).unwrap();
    check_refuses(folder, "cert: cert.pem: is a directory, not a file");
}

#[test]
fn a_key_that_cannot_be_used_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    drop(encrypted(folder));
    let key = folder.join("key.pem");
    let good = std::fs::read_to_string(&key).unwrap();
    let block = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
    let encrypted = "key: key.pem: the key is encrypted with a password, which a server cannot ask for; decrypt it with `openssl pkey`";
    for (text, expected) in [
        (
            String::new(),
            "key: key.pem: contains no private key in PEM format (a block that begins with -----BEGIN PRIVATE KEY-----)",
        ),
        (
            block("PRIVATE KEY"),
            "key: key.pem: cannot be used: it is not an RSA, ECDSA or Ed25519 key",
        ),
        (block("ENCRYPTED PRIVATE KEY"), encrypted),
        (block("RSA PRIVATE KEY").replace("\nAAAA", "\nProc-Type: 4,ENCRYPTED\n\nAAAA"), encrypted),
        (
            rcgen::KeyPair::generate().unwrap().serialize_pem(),
            "key: key.pem: the key does not match the first certificate in cert.pem, which must be the server's own",
        ),
    ] {
        write_key(folder, &text);
        check_refuses(folder, expected);
    }
    write_key(folder, &good);
    set_mode(folder, 0o604);
    check_refuses(
        folder,
        "key: key.pem: all users of this machine have access to the key (mode 604); remove it with `chmod o-rwx`",
    );
    write_key(folder, &"x".repeat(1024 * 1024 + 1));
    let too_large =
        "key: key.pem: has more than 1048576 bytes, too many for a certificate chain or a key";
    check_refuses(folder, too_large);
    std::fs::remove_file(&key).unwrap();
    assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
    check_refuses(folder, "key: key.pem: is a pipe, a socket or a device, not a file");
}

#[test]
fn one_file_without_the_other_is_refused_and_the_environment_can_name_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    let mut command = program();
    command.current_dir(folder).arg("check").env("RATELIMITER_SERVER__TLS__CERT", "cert.pem");
    let output = command.output().unwrap();
    assert_eq!(
        stdout(&output),
        "RATELIMITER_SERVER__TLS__CERT: server.tls.key: is missing; configure the certificate and its key together\n"
    );
    command.env("RATELIMITER_SERVER__TLS__KEY", "key.pem");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

/// CMD-01: the log reports whether the new pair was loaded.
#[test]
fn sighup_reloads_the_certificate_and_keeps_the_old_one_when_the_new_is_bad() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    let server = Process::start_as(encrypted(folder), folder);
    let trusting = ["--cacert", "cert.pem"];
    for (version, status) in [("--http1.1", "1.1 200"), ("--http2", "2 200")] {
        let shown = [&trusting[..], &[version, "-w", "%{http_version} %{http_code}"]].concat();
        let (ok, text) = curl(folder, &server, &shown);
        assert!(ok && text == format!("ok\n{status}"), "{text}");
    }

    let first = std::fs::read(folder.join("cert.pem")).unwrap();
    write_pair(folder);
    assert!(!curl(folder, &server, &trusting).0, "the server still shows the first");
    server.signal("HUP");
    server.wait_for_line("certificate reloaded").unwrap();
    assert!(curl(folder, &server, &trusting).0);

    let good = std::fs::read(folder.join("cert.pem")).unwrap();
    std::fs::write(folder.join("cert.pem"), first).unwrap();
    server.signal("HUP");
    server.wait_for_line("certificate not reloaded; the old one stays in force").unwrap();
    std::fs::write(folder.join("cert.pem"), good).unwrap();
    assert!(curl(folder, &server, &trusting).0, "the second is still shown");

    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("key.pem: the key does not match"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

#[test]
fn sighup_without_a_certificate_does_not_end_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path());
    server.signal("HUP");
    server.wait_for_line("nothing to reload; server.tls is not set").unwrap();
    assert_eq!(server.ask("GET", "/healthz", "").unwrap().0, 200);
}

#[test]
fn the_tools_trust_the_certificate_that_they_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    let server = Process::start_as(encrypted(folder), folder);
    let url = format!("https://localhost:{}", server.addr.port());
    let list = |arguments: &[&str]| {
        let mut command = program();
        command.current_dir(folder).args(["limits", "list", "--url", &url]).args(arguments);
        command.output().unwrap()
    };
    let output = list(&["--cacert", "cert.pem"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = list(&["--cacert", "nowhere.pem"]);
    assert_eq!(
        stderr(&output),
        "ratelimiterd: --cacert: nowhere.pem: No such file or directory (os error 2)\n"
    );
}

/// CMD-04
#[test]
fn the_live_view_counts_denials_over_https() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder);
    let server = Process::start_as(encrypted(folder), folder);
    let url = format!("https://localhost:{}", server.addr.port());
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.current_dir(folder).args(arguments).args(["--url", &url, "--cacert", "cert.pem"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    run(&[
        "limits",
        "put",
        "k",
        "--kind",
        "concurrency",
        "--capacity",
        "1",
        "--timeout-seconds",
        "60",
    ]);
    for lease in ["01J9ZC3V9W8Q4N2M6T5R7Y1K0D", "01J9ZC3V9W8Q4N2M6T5R7Y1K0E"] {
        let body = format!(r#"{{"lease_id":"{lease}","requirements":[{{"key":"k","amount":1}}]}}"#);
        let (ok, text) =
            curl_at(folder, &server, "/v1/reserve", &["--cacert", "cert.pem", "-d", &body]);
        assert!(ok, "{text}");
    }
    expect![[r#"
        FILLED                              USED/CAPACITY  CHANGE/S    DENIED  DENIED/S      DEBT  KEY
        [########################]                    1/1        +0         1         0         0  k
    "#]].assert_eq(&run(&["top", "--times", "1"]));
}
