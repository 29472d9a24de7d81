//! The compile time of the derive. Generated crates have 1, 10 and 100 structs, without derives, with serde's
//! derives, and with serde's derives and `IndexTable`.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use object::{Object, ObjectSection, SectionKind};
use serde::{Deserialize, Serialize};

use crate::median;

/// The derives of the entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Derives {
    /// No derives.
    None,
    /// `Serialize` and `Deserialize`.
    Serde,
    /// `Serialize`, `Deserialize` and `IndexTable`, with four indexes.
    IndexTable,
}

const DERIVES: [Derives; 3] = [Derives::None, Derives::Serde, Derives::IndexTable];

/// The costs of one crate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cost {
    /// The number of structs, each with eight fields.
    pub entities: usize,
    /// The derives of the structs.
    pub derives: Derives,
    /// The median time of `cargo check` in seconds, without the dependencies.
    pub check: f64,
    /// The median time of `cargo build --release` in seconds, of a program that uses all generated code.
    pub build: f64,
    /// The size of the code in the program, in bytes.
    pub text: u64,
}

/// Measures the costs of all crates. Each round builds all crates in turn; the results are medians of the
/// rounds.
///
/// # Errors
///
/// Fails if cargo can't be run, or if it reports an error in the generated code.
pub fn measure(entities: &[usize], rounds: usize) -> Result<Vec<Cost>, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut crates = Vec::new();
    for &entities in entities {
        crates.extend(DERIVES.map(|derives| Crate { entities, derives }));
    }
    let (mut checks, mut builds) = (vec![Vec::new(); crates.len()], vec![Vec::new(); crates.len()]);
    let mut texts = vec![0; crates.len()];
    // Compiles the dependencies.
    crates[0].write(directory.path(), 0)?;
    cargo(directory.path(), &["check", "--lib"])?;
    cargo(directory.path(), &["build", "--release"])?;
    for round in 1..=rounds {
        for (position, krate) in crates.iter().enumerate() {
            eprintln!(
                "build {round} of {rounds}: {} entities, {:?}",
                krate.entities, krate.derives
            );
            krate.write(directory.path(), round)?;
            checks[position].push(cargo(directory.path(), &["check", "--lib"])?);
            builds[position].push(cargo(directory.path(), &["build", "--release"])?);
            texts[position] = text(&directory.path().join("target/release/build-cost"))?;
        }
    }
    let costs = crates.iter().zip(checks).zip(builds).zip(texts);
    Ok(costs
        .map(|(((krate, checks), builds), text)| Cost {
            entities: krate.entities,
            derives: krate.derives,
            check: median(checks.into_iter()),
            build: median(builds.into_iter()),
            text,
        })
        .collect())
}

struct Crate {
    entities: usize,
    derives: Derives,
}

impl Crate {
    /// Writes the crate. Its text contains the round, so that cargo compiles it in each round.
    fn write(&self, directory: &Path, round: usize) -> Result<(), String> {
        let write = |name: &str, text: &str| {
            fs::write(directory.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::create_dir_all(directory.join("src")).map_err(|error| error.to_string())?;
        // Uses the dependency versions of this workspace, which are downloaded already.
        fs::copy(root.join("Cargo.lock"), directory.join("Cargo.lock"))
            .map_err(|error| error.to_string())?;
        write(
            "Cargo.toml",
            &format!(
                "[package]\nname = \"build-cost\"\nedition = \"2024\"\n[workspace]\n\
                 [dependencies]\nindex-table = {{ path = '{}' }}\n\
                 postcard = {{ version = \"1\", default-features = false, features = [\"use-std\"] }}\n\
                 serde = {{ version = \"1\", features = [\"derive\"] }}\n",
                root.display()
            ),
        )?;
        let (mut lib, mut main) = (format!("//! Round {round}.\n"), String::new());
        let mut calls = String::new();
        for number in 0..self.entities {
            lib.push_str(&self.entity(number));
            main.push_str(&self.program(number));
            let _ = writeln!(calls, "    entity{number}();");
        }
        write("src/lib.rs", &lib)?;
        let main = format!("use std::hint::black_box;\n{main}fn main() {{\n{calls}}}\n");
        write("src/main.rs", &format!("//! Round {round}.\n{main}"))
    }

    fn entity(&self, number: usize) -> String {
        let (derives, indexes, primary_key) = match self.derives {
            Derives::None => ("", "", ""),
            Derives::Serde => ("#[derive(serde::Serialize, serde::Deserialize)]\n", "", ""),
            Derives::IndexTable => (
                "#[derive(serde::Serialize, serde::Deserialize, index_table::IndexTable)]\n",
                "#[index(town)]\n#[index(town, name, include = [phone])]\n\
                 #[index(year, strategy = \"full\")]\n#[index(email, unique)]\n",
                "#[primary_key]\n    ",
            ),
        };
        format!(
            "{derives}{indexes}pub struct Entity{number} {{\n    {primary_key}pub id: u64,\n    \
             pub name: String,\n    pub town: String,\n    pub street: String,\n    \
             pub year: u16,\n    pub phone: String,\n    pub email: String,\n    \
             pub score: i64,\n}}\n\n"
        )
    }

    /// Returns a function that uses all derived code of an entity.
    fn program(&self, number: usize) -> String {
        let entity = format!("build_cost::Entity{number}");
        let row = format!(
            "let row = {entity} {{ id: 1, name: String::new(), town: String::new(), street: \
             String::new(), year: 1, phone: String::new(), email: String::new(), score: 1 }};"
        );
        let body = match self.derives {
            Derives::None => "black_box(&row);".to_owned(),
            Derives::Serde => format!(
                "let bytes = postcard::to_allocvec(black_box(&row)).unwrap();
    black_box(postcard::from_bytes::<{entity}>(&bytes).unwrap());"
            ),
            Derives::IndexTable => format!(
                "let store = index_table::Store::open(black_box(\"store\")).unwrap();
    let table = build_cost::Entity{number}Repository::open(&store).unwrap();
    let mut txn = store.write().unwrap();
    table.insert(&mut txn, &row).unwrap();
    table.put(&mut txn, &row).unwrap();
    table.update(&mut txn, 1, |row| row.score += 1).unwrap();
    table.delete(&mut txn, 1).unwrap();
    txn.commit().unwrap();
    let txn = store.read().unwrap();
    black_box(table.get(&txn, 1).unwrap());
    black_box(table.get_by_email(&txn, \"\").unwrap());
    table.all(&txn).rows().for_each(|row| drop(black_box(row)));
    table.find_by_town(&txn, \"\").rows().for_each(|row| drop(black_box(row)));
    table.find_by_town_name(&txn, \"\", \"\").entries().for_each(|it| drop(black_box(it)));
    table.find_by_town_name_range(&txn, \"\", \"\"..).entries().for_each(|it| drop(black_box(it)));
    table.find_by_year(&txn, 1).rows().for_each(|row| drop(black_box(row)));
    black_box(table.find_by_town(&txn, \"\").page(20).unwrap());
    black_box(table.find_by_town(&txn, \"\").count().unwrap());"
            ),
        };
        format!("fn entity{number}() {{\n    {row}\n    {body}\n}}\n\n")
    }
}

/// Runs cargo, and returns its time in seconds.
fn cargo(directory: &Path, arguments: &[&str]) -> Result<f64, String> {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.args(arguments).arg("--offline").arg("--quiet").current_dir(directory);
    command.env("CARGO_TARGET_DIR", directory.join("target")).env("CARGO_INCREMENTAL", "0");
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"] {
        command.env_remove(name);
    }
    let start = Instant::now();
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let time = start.elapsed().as_secs_f64();
    if output.status.success() {
        Ok(time)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Returns the total size of the sections with code.
fn text(program: &Path) -> Result<u64, String> {
    let say = |error: &dyn std::fmt::Display| format!("{}: {error}", program.display());
    let bytes = fs::read(program).map_err(|error| say(&error))?;
    let file = object::File::parse(bytes.as_slice()).map_err(|error| say(&error))?;
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    Ok(code.map(|section| section.size()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles the crates of one entity.
    #[test]
    #[ignore = "compiles index-table and its dependencies once more"]
    fn each_derive_adds_code_to_the_program() {
        let costs = measure(&[1], 1).unwrap();
        assert!(costs.windows(2).all(|pair| pair[0].text < pair[1].text));
    }
}
