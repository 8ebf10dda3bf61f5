"""Kafka's security properties are translated or rejected with a remedy. No error shows a password."""

from __future__ import annotations

import pytest

from kwire.cluster.jaas import parse_jaas
from kwire.cluster.security_properties import tls_and_sasl as translate
from kwire.errors import ConfigurationError
from kwire.net import Tls
from kwire.session import Sasl

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;"


@pytest.mark.parametrize(
    ("properties", "tls", "sasl"),
    [
        ({}, None, None),
        ({"security.protocol": "plaintext"}, None, None),
        ({"security.protocol": "SSL"}, Tls(), None),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}, Tls(check_hostname=False), None),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
            Tls(ca_file="/ca.pem"),
            None,
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "pem",
                "ssl.keystore.location": "/me.pem",
                "ssl.key.password": "k",
            },
            Tls(cert_file="/me.pem", key_file="/me.pem", key_password="k"),
            None,
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.ca.location": "/ca.pem",
                "ssl.certificate.location": "/c.pem",
                "ssl.key.location": "/k.pem",
            },
            Tls(ca_file="/ca.pem", cert_file="/c.pem", key_file="/k.pem"),
            None,
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
            None,
            Sasl("PLAIN", "u", "p"),
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "scram-sha-512", "sasl.jaas.config": SCRAM},
            Tls(),
            Sasl("SCRAM-SHA-512", "u", "p"),
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "u",
                "sasl.password": "p",
            },
            Tls(),
            Sasl("SCRAM-SHA-256", "u", "p"),
        ),
    ],
)
def test_translates(properties: dict[str, str], tls: Tls | None, sasl: Sasl | None) -> None:
    assert translate(properties, "kafka.") == (tls, sasl)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol is 'TLS': give one of PLAINTEXT, SSL"),
        ({"ssl.ca.location": "/ca"}, r"kafka.ssl.\* are given, but kafka.security.protocol is PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.username": "u"}, r"kafka.sasl.\* are given"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing: give one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "EXTERNAL"}, "'EXTERNAL': give one of PLAIN, SCRAM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "give kafka.sasl.jaas.config, or"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "does not fit the mechanism PLAIN: it should look like `PlainLoginModule",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN,
                "sasl.username": "u",
            },
            "mean the same",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"}, "type is JKS .*PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.type": "PKCS12"}, "kafka.ssl.keystore.type is PKCS12: .*openssl"),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/a",
                "ssl.ca.location": "/b",
            },
            "mean the same",
        ),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "maybe"}, "is 'maybe': give https"),
    ],
)
def test_refuses(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        translate(properties, "kafka.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('PlainLoginModule required username="u" password="p";', ("u", "p")),
        ("PlainLoginModule required\n  username=u\n  password=p ;", ("u", "p")),
        ('PlainLoginModule required password="a;b = \\"c\\" \\\\" username="x y";', ("x y", 'a;b = "c" \\')),
        ('PlainLoginModule required serviceName="k" username="u" password="";', ("u", "")),
        ('kafkashaded.org.x.PlainLoginModule required username="u" password="p"', ("u", "p")),
        # As Java's StreamTokenizer reads them; Confluent Cloud's documents have the first.
        ("PlainLoginModule   required username='KEY'   password='a b;\"c';", ("KEY", 'a b;"c')),
        ("PlainLoginModule REQUIRED username='it\\'s' password='p';", ("it's", "p")),
        (
            r'PlainLoginModule required username="u" password="x\ty\101\0\377\400\18\q\"\\";',
            ("u", 'x\tyA\0\xff 0\x018q"\\'),
        ),
        (r'PlainLoginModule required username="u" password="\a\b\f\v\n\r\477";', ("u", "\a\b\f\v\n\r'7")),
        ('PlainLoginModule required /* password="x"; */ username="u" // "\n, password="p"; // end', ("u", "p")),
        ('"x.PlainLoginModule" required "username" = "u"password\n=\np ;', ("u", "p")),
        ('PlainLoginModule required username="a" username="u" password=a/b+c==;', ("u", "a/b+c==")),
    ],
)
def test_parse_jaas(text: str, expected: tuple[str, str]) -> None:
    assert parse_jaas(text, "PLAIN", "kafka.") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        'username="u" password="s3cret"',
        'KerberosLoginModule required username="u" password="s3cret";',
        'PlainLoginModule required username="u" pasword="s3cret";',
        'PlainLoginModule required password="s3cret";',
        'PlainLoginModule required username="u" password="s3cret;',
        'PlainLoginModule required username="u" password="s3c"s3cret";',
        'PlainLoginModule required username="u" password="p" "s3cret";',
        'PlainLoginModule required username "u" password="s3cret";',
        'PlainLoginModule required username="u" password="a\ns3cret";',
        'PlainLoginModule required username="u" pass/* */word="s3cret";',
        'PlainLoginModule required username="u" password="s3cret"; junk',
        'PlainLoginModule required username="u" password="p"; PlainLoginModule required password="s3cret";',
    ],
)
def test_parse_jaas_refuses_without_showing_the_password(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_jaas(text, "PLAIN", "kafka.")
    assert "s3cret" not in str(caught.value)


OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://i/token",
}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CLIENT = {"sasl.oauthbearer.client.id": "id", "sasl.oauthbearer.client.secret": "s"}
KEY = {"sasl.oauthbearer.assertion.private.key.file": "/k.pem", "sasl.oauthbearer.assertion.claim.iss": "me"}


@pytest.mark.parametrize(
    ("properties", "sasl"),
    [
        (
            {
                "sasl.oauthbearer.client.credentials.client.id": "id",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.oauthbearer.scope": "a b",
                "ssl.ca.location": "/ca.pem",
            },
            Sasl.oauth_client_credentials("https://i/token", "id", "s", scope="a b"),  # the system's authorities
        ),
        (
            {
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "https.ca.location": "/token-ca.pem",
                "ssl.ca.location": "/ca.pem",
            },
            Sasl.oauth_client_credentials("https://i/token", "id", "s", ca_file="/token-ca.pem"),
        ),
        (
            {
                "sasl.jaas.config": f"{MODULE} clientId='id' clientSecret='s' ssl.protocol='SSL' "
                "ssl.truststore.location='/token-ca.pem' ssl.truststore.type='PEM';",
            },
            Sasl.oauth_client_credentials("https://i/token", "id", "s", ca_file="/token-ca.pem"),
        ),
        (
            {
                "sasl.jaas.config": f'{MODULE} clientId="id" clientSecret="s" scope="x" extension_pool="p";',
                "sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
            },
            Sasl.oauth_client_credentials("https://i/token", "id", "s", scope="x", extensions={"pool": "p"}),
        ),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.extensions": "a=b,c=d",
            },
            Sasl.oauth_client_credentials("https://i/token", "id", "s", extensions={"a": "b", "c": "d"}),
        ),
        (
            {**KEY, "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.x.JwtBearerJwtRetriever"},
            Sasl.oauth_assertion("https://i/token", private_key="/k.pem", claims={"iss": "me"}),
        ),
        (
            {**KEY, "sasl.oauthbearer.client.credentials.client.id": "id"},
            Sasl.oauth_assertion(
                "https://i/token",
                private_key="/k.pem",
                claims={"iss": "me"},
                grant="client_credentials",
                client_id="id",
            ),
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///var/run/a%20token"}, Sasl.oauth_file("/var/run/a token")),
    ],
)
def test_oauthbearer(properties: dict[str, str], sasl: Sasl) -> None:
    assert translate({**OAUTH, **properties})[1] == sasl


def test_a_delegation_token() -> None:
    jaas = SCRAM.replace(";", ' tokenauth="true";')
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    assert translate(given)[1] == Sasl.delegation_token("u", "p", "SCRAM-SHA-256")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "client id or secret .* missing"),
        ({"sasl.oauthbearer.jwt.retriever.class": "JwtBearerJwtRetriever"}, "assertion .* is missing"),
        (
            {"sasl.login.callback.handler.class": "com.example.Mine"},
            "names a class of Java: in Python, kwire.Sasl.oauth",
        ),
        (
            {"sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"},
            "kwire.Sasl.aws_msk_iam does the same",
        ),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.example.Mine"}, "retriever.class names a class that is not"),
        ({"sasl.oauthbearer.grant.type": "password"}, "grant.type is 'password': give one of client_credentials"),
        ({"sasl.oauthbearer.method": "azure"}, "method is 'azure': give one of default, oidc"),
        ({**CLIENT, "sasl.oauthbearer.header.urlencode": "yes"}, "urlencode is 'yes': give one of true, false"),
        ({**KEY, "sasl.oauthbearer.assertion.claim.jti.include": "1"}, "jti.include is '1': give one of true"),
        ({"sasl.jaas.config": f"{MODULE} ssl.truststore.location='/ca.jks';"}, "is no PEM file"),
        ({"sasl.jaas.config": f"{MODULE} ssl.keystore.location='/k';"}, "no certificate"),
        (
            {
                "sasl.jaas.config": f"{MODULE} ssl.truststore.location='/a' ssl.truststore.type=PEM;",
                "https.ca.location": "/b",
            },
            "mean the same",
        ),
        ({"sasl.jaas.config": 'PlainLoginModule required username="s3cret";'}, "does not fit"),
    ],
)
def test_oauthbearer_refuses(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        translate({**OAUTH, **properties}, "kafka.")
    assert "s3cret" not in str(caught.value)


KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.parametrize(
    ("properties", "sasl"),
    [
        ({}, Sasl.kerberos()),
        (
            {
                "sasl.kerberos.service.name": "broker",
                "sasl.jaas.config": f'{KRB5} useKeyTab=true storeKey=true keyTab="/k" principal="me@R";',
            },
            Sasl.kerberos("broker", keytab="/k", principal="me@R"),
        ),
        ({"sasl.jaas.config": f'{KRB5} useTicketCache=true serviceName="k";'}, Sasl.kerberos("k")),
        (
            {"sasl.jaas.config": f'{KRB5} useTicketCache=true ticketCache="/c" useKeyTab=false keyTab="/k";'},
            Sasl.kerberos(ccache="/c"),
        ),
        (
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "me", "sasl.kerberos.service.name": "kafka"},
            Sasl.kerberos(keytab="/k", principal="me"),
        ),
    ],
)
def test_kerberos(properties: dict[str, str], sasl: Sasl) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **properties}
    assert translate(given) == (None, sasl)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.jaas.config": f"{KRB5} useKeyTab=true;"}, "useKeyTab without keyTab"),
        ({"sasl.jaas.config": f"{KRB5} serviceName=a;", "sasl.kerberos.service.name": "b"}, "differ"),
        ({"sasl.jaas.config": PLAIN}, "does not fit the mechanism GSSAPI: it should look like `Krb5LoginModule"),
        ({"sasl.kerberos.service.name": "kafka/host"}, "first part of the brokers' principal"),
    ],
)
def test_kerberos_refuses(properties: dict[str, str], message: str) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **properties}
    with pytest.raises(ConfigurationError, match=message):
        translate(given)
