//! Manual pages of the C libraries, from their headers: what a header says of a group of declarations stands before that group.

use std::fmt::Write;

/// A library's page.
pub struct Page {
    /// Its name, as of the file and the title.
    pub name: &'static str,
    /// The page's file.
    pub path: &'static str,
    /// The header's file, and how programs include it.
    pub header: &'static str,
    /// See `header`.
    pub include: &'static str,
    /// How programs are linked.
    pub link: &'static str,
}

/// All of them.
pub const PAGES: [Page; 5] = [
    Page {
        name: "shunt_am",
        path: "docs/man/shunt_am.3",
        header: "crates/am-c/include/shunt_am.h",
        include: "shunt_am.h",
        link: "cc ... $(pkg-config --cflags --libs shunt-am)",
    },
    Page {
        name: "shunt_endpoint",
        path: "docs/man/shunt_endpoint.3",
        header: "crates/endpoint-c/include/shunt/endpoint.h",
        include: "shunt/endpoint.h",
        link: "cc ... $(pkg-config --cflags --libs shunt-endpoint)",
    },
    Page {
        name: "shunt_buffers",
        path: "docs/man/shunt_buffers.3",
        header: "crates/buffers-c/include/shunt_buffers.h",
        include: "shunt_buffers.h",
        link: "cc ... $(pkg-config --cflags --libs shunt-buffers)",
    },
    Page {
        name: "shunt_network",
        path: "docs/man/shunt_network.3",
        header: "crates/buffers-c/include/shunt_network.h",
        include: "shunt_network.h",
        link: "cc ... $(pkg-config --cflags --libs shunt-buffers)",
    },
    Page {
        name: "shunt_rpc",
        path: "docs/man/shunt_rpc.3",
        header: "crates/rpc-c/include/shunt_rpc.h",
        include: "shunt/shunt_rpc.h",
        link: "cc ... $(pkg-config --cflags --libs shunt-rpc)",
    },
];

/// A comment, and the declarations behind it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    comment: Vec<String>,
    code: Vec<String>,
}

/// The page of a header with this text.
pub fn render(page: &Page, text: &str) -> String {
    let (intro, groups) = groups(text);
    let mut paragraphs = intro.split(|line| line.is_empty()).map(|lines| lines.join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let (sentence, rest) = first.split_once(". ").map_or((first.as_str(), ""), |(sentence, rest)| (sentence, rest));
    let functions: Vec<String> = groups.iter().flat_map(|group| group.code.iter().filter_map(|line| function(line))).collect();
    let mut roff = format!(
        ".\\\" Made from {} by cargo run -p shunt-xtask.\n.\\\" functions: {}\n.TH {} 3 \"\" \"shunt\" \"Library Functions Manual\"\n",
        page.header,
        functions.join(" "),
        page.name.to_uppercase()
    );
    let names: Vec<&str> = std::iter::once(page.name).chain(functions.iter().map(String::as_str)).collect();
    let _ = writeln!(roff, ".SH NAME\n{} \\- {}", names.join(", "), escaped(sentence.trim_end_matches('.')));
    let _ = writeln!(roff, ".SH SYNOPSIS\n.nf\n.B #include <{}>\n.sp\n{}\n.fi", page.include, escaped(page.link));
    let _ = writeln!(roff, ".SH DESCRIPTION");
    for paragraph in std::iter::once(rest.to_owned()).chain(paragraphs).filter(|paragraph| !paragraph.is_empty()) {
        let _ = writeln!(roff, ".PP\n{}", text_line(&paragraph));
    }
    let _ = writeln!(roff, ".SH DECLARATIONS");
    for group in &groups {
        let _ = writeln!(roff, ".PP");
        for paragraph in group.comment.split(|line| line.is_empty()).map(|lines| lines.join(" ")) {
            if !paragraph.is_empty() {
                let _ = writeln!(roff, "{}", text_line(&paragraph));
            }
        }
        if !group.code.is_empty() {
            let _ = writeln!(roff, ".RS 4\n.nf");
            for line in &group.code {
                let _ = writeln!(roff, "{}", text_line(line));
            }
            let _ = writeln!(roff, ".fi\n.RE");
        }
    }
    roff + ".SH SEE ALSO\n.BR shunt (1)\n"
}

/// The header's first comment, and its groups.
fn groups(text: &str) -> (Vec<String>, Vec<Group>) {
    let mut intro = None;
    let mut groups = vec![Group::default()];
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("/*") {
            let mut comment = vec![];
            let mut line = line.trim_start_matches("/*").trim_start_matches('*');
            loop {
                let ended = line.trim_end().strip_suffix("*/");
                comment.push(ended.unwrap_or(line).trim().trim_matches('-').trim().to_owned());
                if ended.is_some() {
                    break;
                }
                let Some(next) = lines.next() else { break };
                line = next.trim_start().trim_start_matches('*');
            }
            match intro {
                None => intro = Some(comment),
                Some(_) => groups.push(Group { comment, code: vec![] }),
            }
            continue;
        }
        let skipped = ["#ifndef", "#ifdef", "#if ", "#endif", "#else", "#include", "extern \"C\"", "}", "#pragma"];
        let is_guard = line.starts_with("#define") && line.ends_with("_H");
        if line.is_empty() {
            groups.push(Group::default());
            continue;
        }
        let closes = line.starts_with('}') && line.len() > 1;
        if is_guard || (!closes && skipped.iter().any(|start| line.starts_with(start))) {
            continue;
        }
        let Some(group) = groups.last_mut() else { continue };
        let head = line.trim_end().strip_suffix('{').map(str::trim_end);
        match head {
            // A body is how, and the page tells what.
            Some(head) if line.starts_with("static") && head.ends_with(')') => {
                group.code.push(format!("{head};"));
                lines.by_ref().find(|line| *line == "}");
            }
            // In one line, or its head in several.
            None if line.starts_with("static inline") && line.contains('{') => {
                group.code.push(format!("{};", line.split('{').next().unwrap_or(line).trim_end()));
            }
            _ => group.code.push(line.to_owned()),
        }
    }
    groups.retain(|group| !group.code.is_empty() || group.comment.iter().any(|line| !line.is_empty()));
    (intro.unwrap_or_default(), groups)
}

/// The name of the function that a line declares.
fn function(line: &str) -> Option<String> {
    if line.starts_with(['#', ' ', '\t', '}', '/']) || line.starts_with("typedef") || !line.contains('(') {
        return None;
    }
    let before = line.split('(').next()?;
    let name = before.rsplit([' ', '*']).next()?;
    (name.starts_with("shunt_") && before.len() > name.len()).then(|| name.to_owned())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line of text, which is no request.
fn text_line(line: &str) -> String {
    let line = escaped(line);
    if line.starts_with(['.', '\'']) {
        format!("\\&{line}")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/* Things for C. Link with -lx.\n *\n * More of it. */\n#ifndef X_H\n#define X_H\n#include <stddef.h>\n\n/* Opens\n * one. */\nshunt_x *shunt_x_open(int a,\n    int b);\n\n#define SHUNT_X 3\nstatic inline int shunt_x_y(int a) {\n    return a;\n}\nint shunt_x_z(void);\n\n#endif\n";

    #[test]
    fn a_header_is_told_group_by_group() {
        let page = Page { name: "shunt_x", path: "x.3", header: "x.h", include: "x.h", link: "cc -lx" };
        let roff = render(&page, HEADER);
        for words in [
            "shunt_x, shunt_x_open, shunt_x_y, shunt_x_z \\- Things for C\n",
            ".PP\nMore of it.\n",
            "Opens one.\n.RS 4\n.nf\nshunt_x *shunt_x_open(int a,\n    int b);\n",
            "#define SHUNT_X 3\nstatic inline int shunt_x_y(int a);\nint shunt_x_z(void);\n",
        ] {
            assert!(roff.contains(words), "{words:?}:\n{roff}");
        }
        assert!(!roff.contains("return a") && !roff.contains("stddef"), "{roff}");
    }

    #[test]
    fn every_function_of_every_header_is_named() {
        for page in &PAGES {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page.header);
            let text = std::fs::read_to_string(path).unwrap();
            let roff = render(page, &text);
            let named = roff.lines().find_map(|line| line.strip_prefix(".\\\" functions: ")).unwrap();
            assert!(named.split(' ').count() > 5, "{named}");
            // What a program could call stands there, however it is written.
            for line in text.lines().filter(|line| line.starts_with("int shunt_") || line.starts_with("void shunt_")) {
                let name = line.split(['(', ' ']).nth(1).unwrap();
                assert!(named.split(' ').any(|known| known == name), "{name} is missing in {}", page.name);
            }
        }
    }
}
