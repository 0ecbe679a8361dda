//! The agents' door over real sockets: what works, and what is refused.

use super::{AgentRequest, Bytes, CALL_BYTES_MAX, Hub};
use crate::hub::{DesiredState, HubOptions};
use crate::tests::sealed;
use crate::tests::{job, new_job, question, register};
use futures::TryStreamExt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_planner::protocol::{Action, HubResponse, NextCommands, NextRead};

struct Served {
    hub: Hub,
    at: SocketAddr,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
    _dir: tempfile::TempDir,
}

async fn serve() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let options = HubOptions { data_dir: dir.path().to_owned(), lease: Duration::from_secs(15), agent_token: None };
    let hub = Hub::open(options).await.unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let router = hub.agent_router();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    Served { hub, at, server, _dir: dir }
}

/// One request on a connection of its own; status and body.
async fn post_to(at: SocketAddr, path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may answer, and close, before it has read a body that is too long.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let split = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, answer[split + 4..].to_vec())
}

async fn call_raw(at: SocketAddr, body: &[u8]) -> (u16, Vec<u8>) {
    post_to(at, "/agent/v1/call", &format!("content-length: {}\r\n", body.len()), body).await
}

async fn ask(at: SocketAddr, request: &AgentRequest) -> HubResponse {
    let (status, body) = call_raw(at, &serde_json::to_vec(request).unwrap()).await;
    assert_eq!(status, 200);
    serde_json::from_slice(&body).unwrap()
}

/// The protocol over HTTP: register, be given a start, answer a read in pieces, or say why not.
#[tokio::test]
async fn an_agent_works_over_http() {
    let Served { hub, at, server, _dir } = serve().await;
    let HubResponse::Registered(registered) = ask(at, &AgentRequest::Register(register("a", "boot", "disk", &[]))).await else {
        panic!("registered")
    };
    let session = registered.session;
    let poll = AgentRequest::NextCommands(NextCommands { session: session.clone(), wait_ms: u64::MAX });
    let (polled, created) = tokio::join!(ask(at, &poll), hub.create_job(new_job("j", DesiredState::Running)));
    created.unwrap();
    let HubResponse::Commands(commands) = polled else { panic!("commands") };
    assert!(
        matches!(&commands[0].action, Action::Start(start) if start.plan == sealed(hub.job(&job("j")).unwrap().plan.as_ref().unwrap()))
    );

    for (headers, body, expected) in [
        ("transfer-encoding: chunked\r\n", "5\r\nsome \r\n5\r\nbytes\r\n0\r\n\r\n", Ok("some bytes")),
        ("content-length: 0\r\nx-weir-error: no such job here\r\n", "", Err("no such job here")),
    ] {
        let question = question();
        let reader = async { hub.read(question).await?.try_collect::<Vec<Bytes>>().await };
        let agent = async {
            let next = AgentRequest::NextRead(NextRead { session: session.clone(), wait_ms: 30_000 });
            let HubResponse::Read(Some(asked)) = ask(at, &next).await else { panic!("a read") };
            let path = format!("/agent/v1/reads/{}?session={session}", asked.id);
            post_to(at, &path, headers, body.as_bytes()).await.0
        };
        let (read, status) = tokio::join!(reader, agent);
        assert_eq!(status, 204);
        let read = read.map(|pieces| String::from_utf8(pieces.concat()).unwrap()).map_err(|e| e.to_string());
        assert_eq!(read, expected.map(str::to_owned).map_err(str::to_owned));
    }
    hub.close().await;
    server.abort();
}

/// What is not a request is refused with a reason, and the hub goes on.
#[tokio::test]
async fn bad_requests_are_refused() {
    let Served { hub, at, server, _dir } = serve().await;
    for body in ["", "{", "{\"dance\": {}}", "{\"register\": {\"agent\": \"\"}}"] {
        let (status, answer) = call_raw(at, body.as_bytes()).await;
        assert_eq!(status, 400, "{body}");
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["code"], "malformed_request");
        assert!(answer["message"].as_str().unwrap().starts_with("the body is not a request of an agent: "), "{answer}");
    }
    let (status, _) = call_raw(at, &vec![b' '; CALL_BYTES_MAX + 1]).await;
    assert_eq!(status, 413);
    let nobody = AgentRequest::NextCommands(NextCommands { session: "nobody".to_owned(), wait_ms: 0 });
    assert!(matches!(ask(at, &nobody).await, HubResponse::Refused(_)));
    let (status, answer) = post_to(at, "/agent/v1/reads/1?session=nobody", "content-length: 0\r\n", b"").await;
    assert_eq!(status, 409);
    assert!(String::from_utf8(answer).unwrap().contains("register again"));
    hub.close().await;
    server.abort();
}
