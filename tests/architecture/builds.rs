//! The builds of the runtime that the steps of `.ci/run` need. A build with optimization takes minutes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    process::Command,
};

use serde_json::Value;

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The packages below a unit, with their features.
type Features = BTreeMap<String, BTreeSet<String>>;

/// The units that Cargo would compile for a command.
struct Graph {
    units: Vec<Value>,
    /// The hash of each unit: of its features, its profile, and the units on which it depends.
    hashes: HashMap<usize, u64>,
}

impl Graph {
    fn of(arguments: &[&str]) -> TestResult<Self> {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .args(["-Z", "unstable-options", "--unit-graph"])
            // The stable compiler has this option as well.
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let mut graph: Value = serde_json::from_slice(&output.stdout)?;
        let Value::Array(units) = graph["units"].take() else { return Err("no units".into()) };
        Ok(Self { units, hashes: HashMap::new() })
    }

    fn dependencies(&self, unit: usize) -> Vec<usize> {
        let all = self.units[unit]["dependencies"].as_array().into_iter().flatten();
        all.filter_map(|own| usize::try_from(own["index"].as_u64()?).ok()).collect()
    }

    fn hash(&mut self, unit: usize) -> u64 {
        if let Some(hash) = self.hashes.get(&unit) {
            return *hash;
        }
        let below = self.dependencies(unit).into_iter().map(|unit| self.hash(unit));
        let mut below: Vec<_> = below.collect();
        below.sort_unstable();
        let own = &mut self.units[unit];
        // The profiles of tests and of other builds have the same settings.
        own["profile"]["name"].take();
        let mut hasher = DefaultHasher::new();
        for part in ["pkg_id", "target", "profile", "platform", "mode", "features"] {
            own[part].to_string().hash(&mut hasher);
        }
        below.hash(&mut hasher);
        let hash = hasher.finish();
        self.hashes.insert(unit, hash);
        hash
    }

    /// Adds the features of a unit and of those on which it depends.
    fn collect(&self, unit: usize, seen: &mut BTreeSet<usize>, features: &mut Features) {
        if !seen.insert(unit) {
            return;
        }
        let own = &self.units[unit];
        let name = own["pkg_id"].as_str().unwrap_or_default();
        let of_macros = own["target"]["kind"][0] == "proc-macro";
        let name = format!("{name}{}", if of_macros { " (a macro)" } else { "" });
        let own = own["features"].as_array().into_iter().flatten();
        let own = own.filter_map(|feature| Some(feature.as_str()?.to_owned()));
        features.entry(name).or_default().extend(own);
        for unit in self.dependencies(unit) {
            self.collect(unit, seen, features);
        }
    }

    /// Returns the libraries of the runtime: the hash of each, and the features below it.
    fn runtimes(&mut self) -> Vec<(u64, Features)> {
        let is_runtime = |unit: &&usize| {
            let own = &self.units[**unit];
            let package = own["pkg_id"].as_str().unwrap_or_default();
            let is_own = package.contains("index-table-runtime");
            is_own && own["target"]["kind"][0] == "lib" && own["mode"] == "build"
        };
        let all: Vec<_> = (0..self.units.len()).collect();
        let own: Vec<_> = all.iter().filter(is_runtime).copied().collect();
        own.into_iter()
            .map(|unit| {
                let mut features = Features::new();
                self.collect(unit, &mut BTreeSet::new(), &mut features);
                (self.hash(unit), features)
            })
            .collect()
    }
}

/// Returns the packages and features with which `.ci/run` runs most of its steps.
fn together() -> Vec<&'static str> {
    let script = include_str!("../../.ci/run");
    let list = script.split_once("\ntogether=(").and_then(|(_, list)| list.split_once(')'));
    list.map(|(list, _)| list.split_whitespace().collect()).unwrap_or_default()
}

/// If this fails, add the features to tests/together/Cargo.toml.
#[test]
#[ignore = "Cargo may have to download the packages of all members"]
fn one_build_of_the_runtime_serves_all_tests() -> TestResult {
    let together = together();
    assert!(together.len() > 4, "{together:?}");
    let with =
        |command: &[&'static str], options: &[&'static str]| [command, &together, options].concat();
    let mut first: Option<(u64, Features)> = None;
    for arguments in [
        vec!["test"],
        vec!["build", "--examples"],
        with(&["build"], &["--examples"]),
        with(&["test"], &["--lib", "--bins"]),
        with(&["test"], &["--doc"]),
    ] {
        let found = Graph::of(&arguments)?.runtimes();
        let [(hash, features)] = found.as_slice() else {
            return Err(
                format!("{arguments:?} has {} libraries of the runtime", found.len()).into()
            );
        };
        let (first_hash, first_features) = first.get_or_insert((*hash, features.clone()));
        let names: BTreeSet<_> = features.keys().chain(first_features.keys()).collect();
        let differs = |name: &&&String| features.get(**name) != first_features.get(**name);
        let differences = names.iter().filter(differs).map(|name| {
            let own = |all: &Features| format!("{:?}", all.get(*name));
            format!("{name}: {} instead of {}", own(features), own(first_features))
        });
        let differences: Vec<_> = differences.collect();
        assert!(differences.is_empty(), "{arguments:?}:\n{}", differences.join("\n"));
        assert_eq!(hash, first_hash, "{arguments:?}: the profiles differ");
    }
    Ok(())
}

/// Returns the text between `start` and the next `"`, or the end of the line.
fn version<'a>(text: &'a str, start: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect(start);
    rest.split(['"', '\n', '-']).next().unwrap_or_default()
}

#[test]
fn the_oldest_supported_rust_runs_the_tests() {
    let supported = version(include_str!("../../Cargo.toml"), "rust-version = \"");
    let toolchain = version(include_str!("../../rust-toolchain.toml"), "channel = \"");
    assert_eq!(toolchain.strip_suffix(".0"), Some(supported));
    assert_eq!(version(include_str!("../../.ci/Containerfile"), "FROM rust:"), toolchain);
    assert!(
        include_str!("../../README.md").contains(&format!("You need Rust {supported} or later"))
    );
}
