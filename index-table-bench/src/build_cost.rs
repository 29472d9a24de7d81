//! The compile time of the derive: a generated crate with 1, 10 and 100 entities, without derives, with those
//! of serde, and with these and `IndexTable`.

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
    /// Nothing.
    None,
    /// `Serialize` and `Deserialize`.
    Serde,
    /// These and `IndexTable`, with four indexes.
    IndexTable,
}

const DERIVES: [Derives; 3] = [Derives::None, Derives::Serde, Derives::IndexTable];

/// The costs of one crate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cost {
    /// How many structs of eight fields.
    pub entities: usize,
    /// Their derives.
    pub derives: Derives,
    /// Seconds of `cargo check`, the median; dependencies are there already.
    pub check: f64,
    /// Seconds of `cargo build --release`, the median, of a program that uses all there is.
    pub build: f64,
    /// Bytes of code in the program.
    pub text: u64,
}

/// The costs of all crates, as medians of the rounds, each of which builds all crates in turn.
///
/// # Errors
///
/// If cargo can't be run, or finds an error in the generated code.
pub fn measure(entities: &[usize], rounds: usize) -> Result<Vec<Cost>, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut crates = Vec::new();
    for &entities in entities {
        crates.extend(DERIVES.map(|derives| Crate { entities, derives }));
    }
    let (mut checks, mut builds) = (vec![Vec::new(); crates.len()], vec![Vec::new(); crates.len()]);
    let mut texts = vec![0; crates.len()];
    // The dependencies.
    crates[0].write(directory.path(), 0)?;
    cargo(directory.path(), &["check", "--lib"])?;
    cargo(directory.path(), &["build", "--release"])?;
    for round in 1..=rounds {
        for (at, one) in crates.iter().enumerate() {
            eprintln!("build {round} of {rounds}: {} entities, {:?}", one.entities, one.derives);
            one.write(directory.path(), round)?;
            checks[at].push(cargo(directory.path(), &["check", "--lib"])?);
            builds[at].push(cargo(directory.path(), &["build", "--release"])?);
            texts[at] = text(&directory.path().join("target/release/build-cost"))?;
        }
    }
    let costs = crates.iter().zip(checks).zip(builds).zip(texts);
    Ok(costs
        .map(|(((one, checks), builds), text)| Cost {
            entities: one.entities,
            derives: one.derives,
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
    /// Writes the crate; another `round` is another text, so that it is compiled.
    fn write(&self, directory: &Path, round: usize) -> Result<(), String> {
        let write = |name: &str, text: &str| {
            fs::write(directory.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::create_dir_all(directory.join("src")).map_err(|error| error.to_string())?;
        // The versions of this workspace, which have been downloaded.
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

    /// Uses all that is derived.
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

/// Seconds.
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

/// The sizes of the sections with code.
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

    /// The crates for real: run it with `--ignored`.
    #[test]
    #[ignore = "compiles index-table and its dependencies once more"]
    fn generated_programs_compile() {
        let costs = measure(&[1], 1).unwrap();
        assert!(costs.windows(2).all(|pair| pair[0].text < pair[1].text));
    }
}
