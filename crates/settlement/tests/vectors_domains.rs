//! Declared digest domains against the data file of the specification, which stands beside the vector folder.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use cacheon_settlement::domains::ALL;
use serde_json::Value;

#[test]
fn vectors_settlement_domains_are_those_of_the_data_file() {
    let path = cacheon_vectors::folder().map(|folder| folder.join("../spec/digest-domains.json"));
    let Some(bytes) = path.and_then(|path| std::fs::read(path).ok()) else {
        println!("vectors domains: SKIPPED, no data file beside the vector folder");
        return;
    };
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let rows = file["domains"].as_array().unwrap();
    for domain in ALL {
        let row = rows.iter().find(|row| row["domain"] == domain.name());
        let row = row.unwrap_or_else(|| panic!("{} is not in the data file", domain.name()));
        assert_eq!(row["schema_version"], 1, "{}", domain.name());
        if domain.members().is_empty() {
            continue;
        }
        assert!(domain.members().is_sorted(), "{}: members in code-point order", domain.name());
        let members = Value::from(domain.members());
        let payloads = row["payloads"].as_array().unwrap();
        assert!(payloads.iter().any(|payload| payload["fields"] == members), "{}: {members}", domain.name());
    }
    println!("vectors domains: {} compared", ALL.len());
}
