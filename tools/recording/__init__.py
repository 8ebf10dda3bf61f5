"""Recordings of what real brokers say: every version of every API of `script.APIS`, written to fixtures/.

Owns: one connection that writes a request and reads the answer (`wire`), the requests that are asked in every version
(`script`), and the files (`fixtures`). The requests are kwire's own, so a recording shows that a real broker took them;
the answers are the broker's own bytes.
"""
