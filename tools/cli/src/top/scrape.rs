//! One request over HTTP 1.0, whose answer is whole and in one piece.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// The longest wait for a connection, and for the next part of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES: u64 = 16 << 20;

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Host and port.
    address: String,
    path: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_port =
            address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if rest.contains("://") || !has_port || url.contains(char::is_whitespace) {
            return Err("expected http://HOST:PORT/PATH".to_owned());
        }
        let path = if path.is_empty() { "/metrics" } else { path };
        Ok(Self { address: address.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

impl Target {
    /// Returns the body of the answer.
    pub(super) fn get(&self) -> io::Result<String> {
        let mut server = self.connect()?;
        server.set_read_timeout(Some(TIMEOUT))?;
        server.set_write_timeout(Some(TIMEOUT))?;
        let Self { address, path } = self;
        server.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        server.take(ANSWER_BYTES).read_to_end(&mut answer)?;
        body(&String::from_utf8_lossy(&answer)).map(str::to_owned).map_err(io::Error::other)
    }

    /// Connects to the first address of the host that answers.
    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(server) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Returns the body of an answer that is whole.
fn body(answer: &str) -> Result<&str, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is no HTTP")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    if code != Some("200") {
        return Err(format!("the answer is {status:?}"));
    }
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" if value.trim() != body.len().to_string() => {
                return Err("the answer is cut off".to_owned());
            }
            "transfer-encoding" => return Err(format!("the answer is encoded as{value}")),
            _ => {}
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_url_or_an_address() {
        for (url, shown) in [
            ("http://127.0.0.1:9184/metrics", "http://127.0.0.1:9184/metrics"),
            ("http://host:80", "http://host:80/metrics"),
            ("localhost:9184", "http://localhost:9184/metrics"),
            ("http://[::1]:9184/a/b?c=d", "http://[::1]:9184/a/b?c=d"),
        ] {
            assert_eq!(url.parse::<Target>().unwrap().to_string(), shown);
        }
        for url in ["", "host", "https://host:443/", "http://host/", "host:port", ":80", "host:80/a b", "host:99999"] {
            assert!(url.parse::<Target>().is_err(), "{url}");
        }
    }

    #[test]
    fn an_answer_is_whole_or_refused() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        assert_eq!(body(&format!("{ok}a 1\n")), Ok("a 1\n"));
        assert_eq!(body("HTTP/1.0 200 OK\r\nServer: x\r\n\r\n"), Ok(""));
        for (answer, why) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), "the answer is \"HTTP/1.1 404 Not Found\""),
            (format!("{ok}a 1"), "the answer is cut off"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "the answer is encoded as chunked"),
            ("220 mail\r\n".to_owned(), "the answer is no HTTP"),
            ("220 mail\r\n\r\n".to_owned(), "the answer is \"220 mail\""),
        ] {
            assert_eq!(body(&answer), Err(why.to_owned()));
        }
    }
}
