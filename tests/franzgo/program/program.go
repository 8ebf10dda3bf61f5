// Package program has what the programs of this module share.
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// Fail prints an error and ends the program with 1. It does nothing without an error.
func Fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Read reads the settings from the first argument, which is JSON.
func Read(settings any) {
	Fail(json.Unmarshal([]byte(os.Args[1]), settings))
}

// WithProtocol returns the context of a client whose member speaks "classic" or "consumer" (KIP-848).
func WithProtocol(lifetime context.Context, protocol string) context.Context {
	if protocol == "consumer" { // franz-go has it behind this value
		return context.WithValue(lifetime, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck
	}
	return lifetime
}
