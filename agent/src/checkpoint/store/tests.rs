//! The state store on each kind of URL, and what cannot be one.

use super::{Put, StateStore};
use crate::secret::no_environment;
use bytes::Bytes;
use weir_planner::error::Class;

async fn holds(store: &StateStore) {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(store.get("jobs/j/x").await.unwrap(), None);
    assert_eq!(store.length("jobs/j/x").await.unwrap(), None);
    assert_eq!(store.list("jobs/j").await.unwrap(), []);
    assert_eq!(store.put_new("jobs/j/x", text("one")).await.unwrap(), Put::Made);
    assert_eq!(store.put_new("jobs/j/x", text("other")).await.unwrap(), Put::Exists);
    assert_eq!(store.get("jobs/j/x").await.unwrap(), Some(text("one")), "what is there is left as it is");
    store.put("jobs/j/deep/y", text("two")).await.unwrap();
    let large = Bytes::from(vec![7u8; 70 << 20]);
    store.put("jobs/j/deep/z", large.clone()).await.unwrap();
    assert_eq!(store.get("jobs/j/deep/z").await.unwrap(), Some(large));
    let mut listed = store.list("jobs/j").await.unwrap();
    listed.sort_unstable();
    let expected = [("jobs/j/deep/y", 3), ("jobs/j/deep/z", 70 << 20), ("jobs/j/x", 3)];
    assert_eq!(listed, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    store.delete(vec!["jobs/j/x".to_owned(), "jobs/j/never".to_owned()]).await.unwrap();
    assert_eq!(store.length("jobs/j/x").await.unwrap(), None);
}

#[tokio::test]
async fn a_directory_and_memory_hold_objects() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("not/yet/there");
    holds(&StateStore::open(&format!("file://{}", deep.display()), no_environment).unwrap()).await;
    holds(&StateStore::open("memory:///", no_environment).unwrap()).await;
}

/// H1, CKP-2: of many that make one object at once, one wins, and its content is what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_makes_an_object() {
    let dir = tempfile::tempdir().unwrap();
    for store in [StateStore::at(dir.path()).unwrap(), StateStore::open("memory:///", no_environment).unwrap()] {
        for race in 0..10 {
            let name = format!("jobs/j/checkpoints/{race}.json");
            let one = |number: u8| {
                let (store, name) = (store.clone(), name.clone());
                async move { (number, store.put_new(&name, Bytes::from(vec![number])).await.unwrap()) }
            };
            let ends = futures::future::join_all((0..16).map(|number| tokio::spawn(one(number)))).await;
            let winners: Vec<u8> =
                ends.into_iter().map(Result::unwrap).filter(|(_, put)| *put == Put::Made).map(|(number, _)| number).collect();
            assert_eq!(winners.len(), 1);
            assert_eq!(store.get(&name).await.unwrap(), Some(Bytes::from(winners)));
        }
    }
}

#[test]
fn what_is_no_state_url_says_what_is() {
    let refused = |url: &str, why: &str| {
        let error = StateStore::open(url, no_environment).unwrap_err();
        assert_eq!(error.class, Class::User);
        assert!(error.message.contains(why) && error.message.contains("s3://bucket/prefix"), "{}", error.message);
    };
    refused("/just/a/path", "has no scheme");
    refused("gs://bucket", "is of an unknown kind");
    refused("s3:///prefix", "names no bucket");
    refused("s3://key:secret@bucket/prefix", "credentials come from the environment");
    let relative = StateStore::open("file://here", no_environment).unwrap_err();
    assert!(relative.message.contains("not an absolute path"), "{}", relative.message);
}
