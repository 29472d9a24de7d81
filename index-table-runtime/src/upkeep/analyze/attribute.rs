//! The attribute that declares an index.

use crate::model::schema::{Condition, IndexSchema, KeyField, KeyForm, Strategy, TableSchema};

/// An `#[index(…)]` attribute, with changes.
pub(super) struct Attribute<'a> {
    index: &'a IndexSchema,
    global: bool,
    pub(super) strategy: Form,
    pub(super) eventual: bool,
    pub(super) sparse: bool,
    /// The name of a method that is added as a filter.
    pub(super) filter: Option<String>,
}

/// The strategy in an attribute.
pub(super) enum Form {
    Normalized,
    Include(Vec<&'static str>),
    Full,
}

impl<'a> Attribute<'a> {
    pub(super) fn of(index: &'a IndexSchema, global: bool) -> Self {
        let strategy = match index.strategy {
            Strategy::Normalized => Form::Normalized,
            Strategy::Partial(fields) => Form::Include(fields.to_vec()),
            Strategy::Full => Form::Full,
        };
        let sparse = index.conditions.contains(&Condition::Sparse);
        Self { index, global, strategy, eventual: index.eventual, sparse, filter: None }
    }

    pub(super) fn text(&self) -> String {
        let index = self.index;
        let mut parts: Vec<String> = index.key.iter().map(field).collect();
        match &self.strategy {
            Form::Normalized => {}
            Form::Include(fields) => parts.push(format!("include = [{}]", fields.join(", "))),
            Form::Full => parts.push("strategy = \"full\"".to_owned()),
        }
        if index.unique {
            parts.push("unique".to_owned());
        }
        if self.sparse {
            parts.push("sparse".to_owned());
        }
        let declared = index.conditions.iter().find_map(|condition| match condition {
            Condition::Filter(method) => Some((*method).to_owned()),
            Condition::Sparse => None,
        });
        let filter = self.filter.clone().or(declared);
        let own_name = index.key.iter().map(|field| field.name).collect::<Vec<_>>().join("_");
        if let Some(filter) = &filter {
            parts.push(format!("filter = {filter}"));
        }
        if filter.is_some() || own_name != index.name {
            parts.push(format!("name = \"{}\"", index.name));
        }
        if self.eventual {
            parts.push("consistency = \"eventual\"".to_owned());
        }
        if self.global {
            parts.push("scope = \"global\"".to_owned());
        }
        format!("#[index({})]", parts.join(", "))
    }
}

/// Returns the fields of the rows that entries of the index don't have.
pub(super) fn missing_fields(table: &TableSchema, index: &IndexSchema) -> Vec<&'static str> {
    let in_primary_key = |name: &str| table.primary_key.iter().any(|field| field.name == name);
    let names = table.fields.iter().map(|field| field.name);
    names.filter(|name| !index.has_field(name) && !in_primary_key(name)).collect()
}

fn field(field: &KeyField) -> String {
    let name = field.name;
    // The type of the method is not known here.
    match field.form {
        KeyForm::Field => name.to_owned(),
        KeyForm::Each => format!("each({name})"),
        KeyForm::Desc => format!("desc({name})"),
        KeyForm::Computed => format!("computed({name}: …)"),
        KeyForm::Hash => format!("hash({name})"),
        KeyForm::EachComputed => format!("each(computed({name}: …))"),
        KeyForm::HashComputed => format!("hash(computed({name}: …))"),
    }
}
