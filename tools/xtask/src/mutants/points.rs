//! Where a source file can be mutated, and the file with all its mutations built in, each behind a
//! switch: one build serves all of them, and a trial costs the tests alone.
//!
//! A mutation is a change that a slip of the hand could make: another operator, a negated
//! condition, a statement or a function that does nothing, a constant of twice its value. Tests,
//! constants, patterns, types and what stands inside macros are left as they are.

use std::ops::Range;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Stmt, Type};

/// One change of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Of the function, with its type: `Cfq::expire`.
    pub function: String,
    /// What becomes what, in the words of the source; one line.
    pub change: String,
    /// Of the place in the file, counted from 1.
    pub line: usize,
}

/// A file's mutations, and the edits by which they come into its text.
#[derive(Debug, Default)]
pub struct Points {
    pub mutations: Vec<Mutation>,
    sites: Vec<Site>,
}

/// A place whose text is written anew, for one mutation or several.
#[derive(Debug)]
struct Site {
    edits: Vec<Edit>,
}

/// Text in the place of a range of the source; an empty range is an insertion.
#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    /// The number of a mutation as `crate::mutant::is` takes it.
    Is(usize),
    /// What a mutation does instead, left out with it where it does not compile.
    Instead(usize, String),
}

/// A file with its mutations built in.
#[derive(Debug, Default)]
pub struct Rendered {
    pub text: String,
    /// Where the mutations stand in the text: the whole site, and what one does instead. The
    /// numbers are those of the file.
    pub ranges: Vec<(Range<usize>, Vec<usize>)>,
}

impl Points {
    /// Finds what can be changed in a file.
    pub fn of(text: &str) -> Result<Points, syn::Error> {
        let file = syn::parse_file(text)?;
        let mut finder =
            Finder { text, points: Points::default(), scope: Vec::new(), in_function: false };
        finder.visit_file(&file);
        Ok(finder.points)
    }

    /// The file with those of its mutations that `keeps` wants, numbered from `first`.
    pub fn render(&self, text: &str, first: usize, keeps: impl Fn(usize) -> bool) -> Rendered {
        let mut edits: Vec<(usize, &Edit)> = Vec::new();
        for (at, site) in self.sites.iter().enumerate() {
            if site.numbers().any(&keeps) {
                edits.extend(site.edits.iter().map(|edit| (at, edit)));
            }
        }
        // A place inside another is found after it: what opens stands in the order of the places
        // and what closes against it. An end comes before a beginning at the same byte.
        edits.sort_by_key(|&(at, edit)| {
            let closes = std::ptr::eq(edit, self.sites[at].edits.last().unwrap_or(edit))
                && self.sites[at].edits.len() > 1;
            let order = if closes { -(at as isize) } else { at as isize };
            (edit.range.start, !closes, order)
        });
        let mut rendered = Rendered::default();
        let mut begun: Vec<Option<usize>> = vec![None; self.sites.len()];
        let mut from = 0;
        for (at, edit) in edits {
            rendered.text.push_str(&text[from..edit.range.start]);
            from = edit.range.end;
            let site = &self.sites[at];
            let start = *begun[at].get_or_insert(rendered.text.len());
            edit.write(&mut rendered, first, &keeps);
            if std::ptr::eq(edit, &site.edits[site.edits.len() - 1]) {
                let end = rendered.text.len();
                rendered.ranges.push((start..end, site.numbers().collect()));
            }
        }
        rendered.text.push_str(&text[from..]);
        rendered
    }
}

impl Site {
    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.edits.iter().flat_map(|edit| &edit.pieces).filter_map(|piece| match piece {
            Piece::Is(number) => Some(*number),
            Piece::Text(_) | Piece::Instead(..) => None,
        })
    }
}

impl Edit {
    fn write(&self, rendered: &mut Rendered, first: usize, keeps: &impl Fn(usize) -> bool) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => rendered.text.push_str(text),
                Piece::Is(number) if keeps(*number) => {
                    rendered.text.push_str(&format!("crate::mutant::is({})", first + number));
                }
                Piece::Is(_) => rendered.text.push_str("false"),
                Piece::Instead(number, text) if keeps(*number) => {
                    let start = rendered.text.len();
                    rendered.text.push_str(text);
                    rendered.ranges.push((start..rendered.text.len(), vec![*number]));
                }
                Piece::Instead(..) => rendered.text.push_str("unreachable!()"),
            }
        }
    }
}

/// Walks a file and notes its places.
struct Finder<'a> {
    text: &'a str,
    points: Points,
    /// Names of the types and functions around.
    scope: Vec<String>,
    in_function: bool,
}

impl Finder<'_> {
    fn of(&self, range: Range<usize>) -> String {
        self.text[range].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn note(&mut self, at: Span, change: String) -> usize {
        let line = at.start().line;
        self.points.mutations.push(Mutation { function: self.scope.join("::"), change, line });
        self.points.mutations.len() - 1
    }

    fn site(&mut self, edits: Vec<(Range<usize>, Vec<Piece>)>) {
        let edits = edits.into_iter().map(|(range, pieces)| Edit { range, pieces }).collect();
        self.points.sites.push(Site { edits });
    }

    /// `left op right` whose operands are evaluated once, before the operator is chosen.
    fn operator(&mut self, binary: &syn::ExprBinary, others: &[&str], places: bool) {
        let whole = binary.span().byte_range();
        let (left, right) = (binary.left.span().byte_range(), binary.right.span().byte_range());
        let said = self.of(whole.clone());
        let own = self.of(binary.op.span().byte_range());
        let (borrow, read) = if places { ("&", "*") } else { ("", "") };
        let mut end = vec![text(")); ")];
        for other in others {
            let number = self.note(binary.op.span(), format!("{said}: {own} becomes {other}"));
            end.extend([text("if "), Piece::Is(number), text(" { ")]);
            end.push(Piece::Instead(number, format!("{read}wl {other} {read}wr")));
            end.push(text(" } else "));
        }
        end.push(text(&format!("{{ {read}wl {own} {read}wr }} }})")));
        self.site(vec![
            (whole.start..whole.start, vec![text(&format!("({{ let (wl, wr) = ({borrow}("))]),
            (left.end..right.start, vec![text(&format!("), {borrow}("))]),
            (whole.end..whole.end, end),
        ]);
    }

    /// `left && right` and `left || right`: the right side is still evaluated only where needed.
    fn lazy(&mut self, binary: &syn::ExprBinary, other: &str) {
        let whole = binary.span().byte_range();
        let (left, right) = (binary.left.span().byte_range(), binary.right.span().byte_range());
        let own = self.of(binary.op.span().byte_range());
        let change = format!("{}: {own} becomes {other}", self.of(whole.clone()));
        let number = self.note(binary.op.span(), change);
        let test = if own == "&&" { "; if wl != " } else { "; if wl == " };
        self.site(vec![
            (whole.start..whole.start, vec![text("({ let wl: bool = ")]),
            (left.end..right.start, vec![text(test), Piece::Is(number), text(" { ")]),
            (whole.end..whole.end, vec![text(" } else { wl } })")]),
        ]);
    }

    /// `place op= value`.
    fn assigned(&mut self, binary: &syn::ExprBinary, others: &[&str]) {
        let whole = binary.span().byte_range();
        let right = binary.right.span().byte_range();
        let place = self.of(binary.left.span().byte_range());
        let own = self.of(binary.op.span().byte_range());
        let said = self.of(whole.clone());
        let mut end = vec![text("; ")];
        for other in others {
            let number = self.note(binary.op.span(), format!("{said}: {own} becomes {other}"));
            end.extend([text("if "), Piece::Is(number), text(" { ")]);
            end.push(Piece::Instead(number, format!("{place} {other} wr")));
            end.push(text(" } else "));
        }
        end.push(text(&format!("{{ {place} {own} wr }} }})")));
        self.site(vec![
            (whole.start..right.start, vec![text("({ let wr = ")]),
            (whole.end..whole.end, end),
        ]);
    }

    /// A condition that is no operator of its own.
    fn condition(&mut self, condition: &Expr) {
        if !is_plain_condition(condition) {
            return;
        }
        let whole = condition.span().byte_range();
        let change = format!("{} is negated", self.of(whole.clone()));
        let number = self.note(condition.span(), change);
        self.site(vec![
            (whole.start..whole.start, vec![text("((")]),
            (whole.end..whole.end, vec![text(") != "), Piece::Is(number), text(")")]),
        ]);
    }

    /// `left.min(right)` and `left.max(right)`.
    fn bound(&mut self, call: &syn::ExprMethodCall, right: &Expr, other: &str) {
        let whole = call.span().byte_range();
        let (left, right) = (call.receiver.span().byte_range(), right.span().byte_range());
        let own = call.method.to_string();
        let change = format!("{}: {own} becomes {other}", self.of(whole.clone()));
        let number = self.note(call.method.span(), change);
        let end = vec![
            text("); if "),
            Piece::Is(number),
            text(" { "),
            Piece::Instead(number, format!("wl.{other}(wr)")),
            text(&format!(" }} else {{ wl.{own}(wr) }} }})")),
        ];
        self.site(vec![
            (whole.start..whole.start, vec![text("({ let (wl, wr) = (")]),
            (left.end..right.start, vec![text(", ")]),
            (right.end..whole.end, end),
        ]);
    }

    fn constant(&mut self, path: &syn::ExprPath) {
        let whole = path.span().byte_range();
        let name = self.of(whole.clone());
        let number = self.note(path.span(), format!("{name} becomes twice {name}"));
        let pieces = vec![
            text("(if "),
            Piece::Is(number),
            text(" { "),
            Piece::Instead(number, format!("{name} * 2")),
            text(&format!(" }} else {{ {name} }})")),
        ];
        self.site(vec![(whole, pieces)]);
    }

    /// A statement that does nothing.
    fn statement(&mut self, statement: &Stmt) {
        let whole = statement.span().byte_range();
        let change = format!("{} is left out", self.of(whole.clone()));
        let number = self.note(statement.span(), change);
        self.site(vec![
            (whole.start..whole.start, vec![text("if !("), Piece::Is(number), text(") { ")]),
            (whole.end..whole.end, vec![text(" }")]),
        ]);
    }

    /// A function that answers something fixed at once.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let values = match &signature.output {
            ReturnType::Default => vec![""],
            ReturnType::Type(_, answer) => fixed_answers(answer),
        };
        if block.stmts.is_empty() {
            return;
        }
        let start = block.brace_token.span.open().byte_range().end;
        for value in values {
            let change = match value {
                "" => "the function does nothing".to_owned(),
                value => format!("the function answers {value}"),
            };
            let number = self.note(signature.ident.span(), change);
            let end = Piece::Instead(number, format!("return {value};"));
            let pieces = vec![text(" if "), Piece::Is(number), text(" { "), end, text(" }")];
            self.site(vec![(start..start, pieces)]);
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        self.scope.push(signature.ident.to_string());
        let outer = std::mem::replace(&mut self.in_function, true);
        self.body(signature, block);
        self.visit_block(block);
        self.in_function = outer;
        self.scope.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.scope.push(name.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.scope.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && self.in_function
            && can_be_left_out(expression)
        {
            self.statement(statement);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.condition(&branch.cond);
        visit::visit_expr_if(self, branch);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if self.in_function && matches!(unary.op, syn::UnOp::Not(_)) {
            let whole = unary.span().byte_range();
            let change = format!("{}: ! is left out", self.of(whole.clone()));
            let number = self.note(unary.span(), change);
            self.site(vec![
                (whole.start..whole.start, vec![text("((")]),
                (whole.end..whole.end, vec![text(") != "), Piece::Is(number), text(")")]),
            ]);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !self.in_function {
            return;
        }
        let (others, kind) = others(&binary.op);
        match kind {
            Kind::Lazy if holds_let(&binary.left) || holds_let(&binary.right) => {}
            Kind::Lazy => self.lazy(binary, others[0]),
            Kind::Compared => self.operator(binary, others, true),
            Kind::Valued => self.operator(binary, others, false),
            Kind::Assigned => {
                // The place is written down twice, so nothing is changed inside it.
                self.assigned(binary, others);
                return self.visit_expr(&binary.right);
            }
        }
        if matches!(kind, Kind::Lazy) {
            self.condition(&binary.left);
            self.condition(&binary.right);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let other = match call.method.to_string().as_str() {
            "min" => Some("max"),
            "max" => Some("min"),
            _ => None,
        };
        if let (Some(other), Some(right), 1) = (other, call.args.first(), call.args.len()) {
            self.bound(call, right, other);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        // A function's name is no value to be doubled.
        if !matches!(&*call.func, Expr::Path(_)) {
            self.visit_expr(&call.func);
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if self.in_function && is_constant(&path.path.segments) {
            self.constant(path);
        }
    }
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

#[derive(Clone, Copy)]
enum Kind {
    /// Takes places as they are, and moves nothing.
    Compared,
    Valued,
    Lazy,
    Assigned,
}

fn others(operator: &BinOp) -> (&'static [&'static str], Kind) {
    match operator {
        BinOp::Lt(_) => (&["<=", ">"], Kind::Compared),
        BinOp::Le(_) => (&["<", ">"], Kind::Compared),
        BinOp::Gt(_) => (&[">=", "<"], Kind::Compared),
        BinOp::Ge(_) => (&[">", "<"], Kind::Compared),
        BinOp::Eq(_) => (&["!="], Kind::Compared),
        BinOp::Ne(_) => (&["=="], Kind::Compared),
        BinOp::And(_) => (&["||"], Kind::Lazy),
        BinOp::Or(_) => (&["&&"], Kind::Lazy),
        BinOp::Add(_) => (&["-", "*"], Kind::Valued),
        BinOp::Sub(_) => (&["+", "/"], Kind::Valued),
        BinOp::Mul(_) => (&["+", "/"], Kind::Valued),
        BinOp::Div(_) => (&["%", "*"], Kind::Valued),
        BinOp::Rem(_) => (&["/", "+"], Kind::Valued),
        BinOp::BitAnd(_) => (&["|", "^"], Kind::Valued),
        BinOp::BitOr(_) => (&["&", "^"], Kind::Valued),
        BinOp::BitXor(_) => (&["&", "|"], Kind::Valued),
        BinOp::Shl(_) => (&[">>"], Kind::Valued),
        BinOp::Shr(_) => (&["<<"], Kind::Valued),
        BinOp::AddAssign(_) => (&["-=", "*="], Kind::Assigned),
        BinOp::SubAssign(_) => (&["+=", "/="], Kind::Assigned),
        BinOp::MulAssign(_) => (&["+=", "/="], Kind::Assigned),
        BinOp::DivAssign(_) => (&["%=", "*="], Kind::Assigned),
        BinOp::BitOrAssign(_) => (&["&=", "^="], Kind::Assigned),
        BinOp::BitAndAssign(_) => (&["|=", "^="], Kind::Assigned),
        BinOp::ShlAssign(_) => (&[">>="], Kind::Assigned),
        BinOp::ShrAssign(_) => (&["<<="], Kind::Assigned),
        _ => (&[], Kind::Assigned),
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(of_test)
    })
}

fn holds_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => holds_let(&binary.left) || holds_let(&binary.right),
        _ => false,
    }
}

fn is_plain_condition(condition: &Expr) -> bool {
    match condition {
        Expr::MethodCall(_) | Expr::Call(_) | Expr::Field(_) | Expr::Path(_) => true,
        Expr::Macro(of) => of.mac.path.is_ident("matches"),
        _ => false,
    }
}

/// Assignments to variables stay: one that is missing is found by the compiler.
fn can_be_left_out(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(assign) => !matches!(&*assign.left, Expr::Path(_)),
        Expr::MethodCall(_) | Expr::Call(_) => true,
        Expr::Binary(binary) => matches!(others(&binary.op).1, Kind::Assigned),
        _ => false,
    }
}

fn is_constant(segments: &Punctuated<syn::PathSegment, syn::Token![::]>) -> bool {
    let Some(last) = segments.last() else { return false };
    let name = last.ident.to_string();
    let shouts = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    shouts && name.len() > 1 && last.arguments.is_none() && !["MAX", "MIN"].contains(&&*name)
}

fn fixed_answers(answer: &Type) -> Vec<&'static str> {
    let Type::Path(path) = answer else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i64" | "i32" => vec!["0", "1"],
        "Option" => vec!["None"],
        _ => Vec::new(),
    }
}
