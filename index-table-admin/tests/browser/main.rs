//! The page in headless Chromium: its views, its keyboard path, and its updates.
//!
//! The pictures of the views are written to the directory of the build, `target/tmp/page`. With `INDEX_TABLE_AXE`, the path of the file
//! `axe.min.js` of npm's package `axe-core`, that tool checks each view.

mod chromium;
mod shop;

use chromium::{Look, Tab, is_here};
use serde_json::Value;
use shop::{Pair, Service, Shop};

const LOOKS: [Look; 3] = [
    Look { name: "light", is_dark: false, width: 1280 },
    Look { name: "dark", is_dark: true, width: 1280 },
    Look { name: "narrow", is_dark: false, width: 390 },
];

/// Returns the texts whose contrast to the background is less than 4.5, the tables and pictures without a name, and the
/// places that are wider than the screen.
const FLAWS: &str = r#"(() => {
  const flaws = [];
  const parse = (text) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const known = new Map();
  const colour = (text) => known.get(text) ?? known.set(text, parse(text)).get(text);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const back = colour(getComputedStyle(at).backgroundColor);
      if (back[3] === 255) return back;
    }
    return [255, 255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || element.closest("svg, script, noscript, caption, .skip") || !box.width) continue;
    const [a, b] = [light(colour(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) flaws.push(`contrast ${contrast.toFixed(1)}: ${element.outerHTML.slice(0, 80)}`);
  }
  for (const svg of document.querySelectorAll("svg:not([aria-hidden])"))
    if (!svg.getAttribute("aria-label")) flaws.push(`no name: ${svg.outerHTML.slice(0, 80)}`);
  for (const input of document.querySelectorAll("input:not([type=hidden])"))
    if (!input.labels.length) flaws.push(`no label: ${input.outerHTML}`);
  const names = [...document.querySelectorAll("[id]")].map((it) => it.id);
  if (new Set(names).size < names.length) flaws.push(`ids are used twice: ${names}`);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) flaws.push(`${root.scrollWidth} wide on ${root.clientWidth}`);
  return flaws;
})()"#;

/// Returns the violations that axe-core finds.
const VIOLATIONS: &str = r#"axe.run().then(({ violations }) =>
  violations.map((it) => `${it.id}: ${it.help}: ${it.nodes.map((node) => node.html).join("; ").slice(0, 300)}`))"#;

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Loads a view in each look, and returns its text.
fn check(tab: &mut Tab, service: &Service, path: &str, name: &str) -> String {
    let mut text = String::new();
    for look in LOOKS {
        tab.look(look);
        tab.go(&service.url(path));
        let flaws = tab.value(FLAWS);
        assert!(list(&flaws).is_empty(), "{path}, {}: {:#?}", look.name, list(&flaws));
        if let Ok(axe) = std::env::var("INDEX_TABLE_AXE") {
            let axe = std::fs::read_to_string(axe).expect("axe-core");
            let found = tab.value(&format!("{axe};\n{VIOLATIONS}"));
            assert!(list(&found).is_empty(), "{path}, {}: {:#?}", look.name, list(&found));
        }
        tab.picture(&format!("{name}-{}", look.name));
        let (requests, errors) = tab.requests_and_errors();
        let own = service.url("");
        assert!(requests.iter().all(|url| url.starts_with(&own)), "{path}: {requests:?}");
        assert!(errors.is_empty(), "{path}: {errors:?}");
        assert!(requests.len() > 1, "{path} has its style: {requests:?}");
        text = tab.text("document.body.innerText");
    }
    text
}

#[test]
fn each_view_is_readable_in_dark_and_light_and_on_a_narrow_screen() {
    if !is_here() {
        return;
    }
    let shop = Shop::new(3000);
    let moving = shop.begin_move();
    let service = Service::start(shop.page());
    let mut tab = Tab::open();
    for (path, name, parts) in [
        ("", "overview", ["1 unfinished move", "half of the commits", "(this process)"]),
        ("table/customers", "table", ["look-ups by primary key", "Trondheim", "Export as CSV"]),
        ("table/customers/town_name", "index-text", ["Most common values", "Oslo", "queries"]),
        ("table/customers/since", "index-dates", ["2016-", "equal part of the range", "Rows"]),
        (
            "table/customers/kind_score",
            "index-enum",
            ["Company", "each column is a value", "partial"],
        ),
        ("table/customers/ranking", "index-floats", ["eventual", "Distribution", "score"]),
        ("table/customers/note", "index-hash", ["hashes", "Search", "0x"]),
        (
            "table/orders/placed",
            "index-times",
            ["2024-", "equal part of the range", "orders.placed"],
        ),
        ("table/customers/town_name?v0=Ber", "search", ["Bergen", "Rows", "Next page"]),
        (
            "table/customers/since?from=2020-01-01&to=2020-02-01",
            "range",
            ["2020-01-", "Rows", "up to"],
        ),
        ("table/customers?c=town&c=score", "columns", ["town", "score", "Columns"]),
        (
            "row/customers?key=0x0000000000000007",
            "row",
            ["\"email\": \"7@example.com\"", "Fields of list 0", "can be absent"],
        ),
        ("schema", "schema", ["Tables and references", "primary key", "town_name"]),
        ("lists/customers", "lists", ["History", "first", "Fields of list 0"]),
        ("shards", "shards", ["Map tenants", "rows copied", "Load"]),
        ("streams", "streams", ["mailer", "Eventual indexes", "has no archive"]),
    ] {
        let text = check(&mut tab, &service, path, name);
        for part in parts {
            assert!(text.contains(part), "{path}: {part} in {text}");
        }
    }
    drop(tab);
    moving.finish();
}

#[test]
fn the_archive_and_the_follower_have_their_lag() {
    if !is_here() {
        return;
    }
    let pair = Pair::new();
    let mut tab = Tab::open();
    let service = Service::start(index_table_admin::router(&pair.store));
    let text = check(&mut tab, &service, "streams", "archive");
    assert!(text.contains("This store to its archive"), "{text}");
    let service = Service::start(index_table_admin::router(pair.follower.store()));
    let text = check(&mut tab, &service, "streams", "follower");
    assert!(text.contains("This follower to its archive"), "{text}");
}

/// Presses Tab until an element has the focus, and checks that each focus on the way is visible.
#[track_caller]
fn tab_to(tab: &mut Tab, selector: &str) {
    for _ in 0..80 {
        tab.press("Tab");
        let found = tab.value(&format!(
            "(() => {{ const at = document.activeElement; const style = getComputedStyle(at); \
             if (at !== document.body && style.outlineStyle === 'none') return at.outerHTML; \
             return at.matches({selector:?}); }})()"
        ));
        match found {
            Value::Bool(true) => return,
            Value::Bool(false) => {}
            other => panic!("the focus can't be seen: {other}"),
        }
    }
    panic!("the keyboard does not reach {selector}");
}

#[test]
fn the_keyboard_reaches_a_row_from_the_overview() {
    if !is_here() {
        return;
    }
    let shop = Shop::new(300);
    let service = Service::start(shop.page());
    let mut tab = Tab::open();
    tab.look(LOOKS[0]);
    tab.go(&service.url(""));
    tab_to(&mut tab, ".skip");
    assert!(tab.value("document.activeElement.getBoundingClientRect().left >= 0") == true);
    tab.press("Enter");
    tab.wait_until("document.activeElement.id === 'main' || location.hash === '#main'");
    tab_to(&mut tab, "h2 a[href='table/customers']");
    tab.press_to_go("Enter");
    assert_eq!(tab.text("document.querySelector('h1').textContent"), "customers");
    tab_to(&mut tab, "nav.indexes a[href$='/town_name']");
    tab.press_to_go("Enter");
    assert_eq!(tab.text("document.querySelector('h1').textContent"), "customers.town_name");
    tab_to(&mut tab, "summary");
    tab.press("Enter");
    tab.wait_until("document.querySelector('details').open");
    tab_to(&mut tab, "#v0");
    tab.write("Ber");
    tab.press_to_go("Enter");
    let towns = "[...new Set([...document.querySelectorAll('#rows tbody td:first-child')].map((it) => it.textContent))].join()";
    assert_eq!(tab.text(towns), "Bergen");
    tab_to(&mut tab, "#rows details summary");
    tab.press("Enter");
    tab.wait_until("document.querySelector('#rows details').open");
    tab_to(&mut tab, "a.row");
    tab.press_to_go("Enter");
    assert!(
        tab.text("document.querySelector('.json').textContent").contains("\"town\": \"Bergen\"")
    );
    tab_to(&mut tab, ".above a[href='../table/customers']");
    tab.press_to_go("Enter");
    tab_to(&mut tab, "a[rel=next]");
    tab.press_to_go("Enter");
    assert_eq!(tab.text("document.querySelector('#rows tbody td').textContent"), "51");
}

#[test]
fn a_move_is_followed_until_its_end() {
    if !is_here() {
        return;
    }
    let shop = Shop::new(3000);
    let moving = shop.begin_move();
    let service = Service::start(shop.page());
    let mut tab = Tab::open();
    tab.look(LOOKS[0]);
    tab.go(&service.url("shards"));
    let text = tab.text("document.body.innerText");
    assert!(text.contains("512 of ") && text.contains("150..300"), "{text}");
    tab.value("window.isSame = true");
    moving.finish();
    tab.wait_until("!document.body.innerText.includes('Unfinished moves')");
    assert_eq!(tab.value("window.isSame"), true, "the page was not loaded again");
    assert_eq!(tab.text("document.getElementById('live').textContent"), "Live");
    tab.value("document.getElementById('pause').click()");
    assert_eq!(tab.text("document.getElementById('live').textContent"), "Paused");
    tab.value("document.getElementById('pause').click()");
    drop(service);
    tab.wait_until("document.getElementById('live').textContent.includes('does not respond')");
}

#[test]
fn markup_in_rows_is_text() {
    if !is_here() {
        return;
    }
    let shop = Shop::new(10);
    shop.add_markup();
    let service = Service::start(shop.page());
    let mut tab = Tab::open();
    for path in [
        "",
        "table/customers?order=desc",
        "table/customers/town_name",
        "table/customers/email",
        "row/customers?key=0x00000000000f4240",
        "table/customers/town_name?v0=%3Cscript%3Ealert(1)%3C/script%3E",
        "table/customers?c=%3Cscript%3Ealert(1)%3C/script%3E",
        "table/customers?from=%3Cscript%3Ealert(1)%3C/script%3E",
        "schema",
        "lists/customers",
        "table/customers/town_name?after=%3Cscript%3Ealert(1)%3C/script%3E",
        "table/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "row/customers?key=%3Cscript%3E",
    ] {
        tab.go(&service.url(path));
        let scripts = "[...document.scripts].filter((it) => !it.src.endsWith('/live.js')).length + document.images.length";
        assert_eq!(tab.value(scripts), 0, "{path}");
        assert!(!tab.text("document.title").contains("pwned"), "{path}");
        let (requests, _) = tab.requests_and_errors();
        assert!(requests.iter().all(|url| !url.ends_with("/x")), "{path}: {requests:?}");
    }
    tab.go(&service.url("row/customers?key=0x00000000000f4240"));
    assert!(
        tab.text("document.querySelector('.json').textContent").contains("<script>document.title")
    );
}
