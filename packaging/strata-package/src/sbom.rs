//! Bills of material: pure functions of a component manifest, so that the verifier makes them again
//! and compares bytes. CycloneDX 1.6 lists parts and files, SPDX 2.3 lists parts (its file records
//! need SHA-1 sums, which manifests do not have).

use serde_json::{Value, json};
use strata_manifest::{Component, Role, Sha256Digest, ThirdParty, UtcTime};

/// File name endings of the two bills, below the component's `share/doc` folder.
pub const CYCLONEDX_FILE: &str = "sbom.cdx.json";
pub const SPDX_FILE: &str = "sbom.spdx.json";

/// CycloneDX 1.6, JSON.
pub fn cyclonedx(component: &Component) -> String {
    let name = format!("strata-{}", component.id());
    let root = root_purl(component);
    let parts = component.third_party.iter().map(|part| {
        json!({
            "type": "library",
            "bom-ref": part.source,
            "name": part.name,
            "version": part.version,
            "licenses": [{ "expression": part.licence }],
            "purl": part.source,
        })
    });
    let files = listed(component).map(|file| {
        json!({
            "type": "file",
            "bom-ref": format!("file:{}", file.path),
            "name": file.path,
            "hashes": [{ "alg": "SHA-256", "content": file.sha256.to_string() }],
        })
    });
    let parts_by_ref: Vec<&str> = component.third_party.iter().map(|part| part.source.as_str()).collect();
    let value = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", uuid(component)),
        "version": 1,
        "metadata": {
            "timestamp": UtcTime::from_seconds(component.source_epoch),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": component.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "purl": root,
                "properties": properties(component),
            },
        },
        "components": parts.chain(files).collect::<Vec<_>>(),
        "dependencies": [{ "ref": root, "dependsOn": parts_by_ref }],
    });
    text(&value)
}

/// SPDX 2.3, JSON.
pub fn spdx(component: &Component) -> String {
    let package = |id: &str, name: &str, version: &str, licence: &str, purl: &str| {
        json!({
            "SPDXID": id,
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": purl,
            }],
        })
    };
    let root_id = "SPDXRef-Package";
    let name = format!("strata-{}", component.id());
    let version = component.version.to_string();
    let mut packages = vec![package(root_id, &name, &version, "MIT OR Apache-2.0", &root_purl(component))];
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", root_id)];
    for part in &component.third_party {
        let id = spdx_id(part);
        packages.push(package(&id, &part.name, &part.version, &part.licence, &part.source));
        relations.push(relation(root_id, "CONTAINS", &id));
    }
    let value = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": component.stem(),
        "documentNamespace": format!("urn:uuid:{}", uuid(component)),
        "creationInfo": {
            "created": UtcTime::from_seconds(component.source_epoch),
            "creators": [format!("Tool: strata-package-{version}")],
        },
        "packages": packages,
        "relationships": relations,
    });
    text(&value)
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

/// Letters, digits, dot and hyphen are what an SPDX id may hold; the digest keeps two parts apart
/// whose names differ elsewhere.
fn spdx_id(part: &ThirdParty) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' };
    let name: String = format!("{}-{}", part.name, part.version).chars().map(plain).collect();
    let digest = Sha256Digest::of_bytes(part.source.as_bytes()).to_string();
    format!("SPDXRef-Part-{name}-{}", &digest[..8])
}

/// The files that a bill lists: all but the bills themselves, whose digests it cannot hold.
fn listed(component: &Component) -> impl Iterator<Item = &strata_manifest::PackageFile> {
    component.files.iter().filter(|file| file.role != Role::Sbom)
}

fn root_purl(component: &Component) -> String {
    // A `+` in a package URL's version is written in percent form.
    let version = component.version.to_string().replace('+', "%2B");
    format!("pkg:generic/strata-{}@{version}", component.id())
}

fn properties(component: &Component) -> Vec<Value> {
    let property = |name: &str, value: &str| json!({ "name": format!("strata:{name}"), "value": value });
    let mut properties = vec![
        property("build_id", &component.build.build_id),
        property("commit", &component.build.commit),
        property("target", &component.build.target),
        property("toolchain", &component.build.toolchain),
    ];
    properties.extend(component.libc_floor.iter().map(|floor| property("libc_floor", floor)));
    properties.extend(component.libstdcxx_floor.iter().map(|floor| property("libstdcxx_floor", floor)));
    properties.extend(component.gpu_targets.iter().map(|target| property("gpu_target", target)));
    properties.extend(component.host_libraries.iter().map(|library| property("host_library", &library.soname)));
    properties
}

/// A number that is a function of what is packed: version and variant bits of a name-based UUID.
fn uuid(component: &Component) -> String {
    let digests: Vec<Sha256Digest> = listed(component).map(|file| file.sha256).collect();
    let seed = format!("{} {}", component.stem(), Sha256Digest::of_digests(&digests));
    let digest = Sha256Digest::of_bytes(seed.as_bytes());
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest.as_array()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
