"""Record the responses of real brokers to every version of every API of `script.APIS`, in fixtures/.

`wire` sends a request and reads its response, `script` lists the requests, and `fixtures` writes the files. kwire
encodes the requests, so a recording shows that a real broker accepts them; the responses are the broker's own bytes.
"""
