use index_table::{IndexTable, RowVersion};

#[derive(RowVersion)]
struct CustomerV1 {
    id: u64,
}

#[derive(IndexTable)]
#[table(version = 2, previous = CustomerV1, view)]
#[index(town)]
#[index(town, last_name, include = [phone])]
#[index(last_name, strategy = "full")]
#[index(email, unique)]
#[index(desc(age))]
#[index(hash(phone))]
#[index(computed(initial: String))]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
    phone: String,
    email: String,
    age: u8,
}

impl From<CustomerV1> for Customer {
    fn from(_: CustomerV1) -> Self {
        todo!()
    }
}

impl Customer {
    fn initial(&self) -> String {
        self.last_name.chars().take(1).collect()
    }
}

fn run(store: &index_table::Store, customer: &Customer) -> index_table::Result<()> {
    let customers = CustomerRepository::open(store)?;
    store.transaction(|txn| customers.insert(txn, customer))?;
    let txn = store.read()?;
    customers.get(&txn, 7)?;
    customers.get_view(&txn, 7)?;
    customers.get_by_email(&txn, "a@example.com")?;
    customers.find_by_town(&txn, "Redmond").count()?;
    customers.find_by_town_last_name(&txn, "Redmond", "Smith").entries().next();
    customers.find_by_last_name_range(&txn, "A"..).rows().next();
    customers.find_by_phone(&txn, "").page(20)?;
    customers.upgrade(store).run()?;
    Ok(())
}

fn main() {}

// 2 mistakes
