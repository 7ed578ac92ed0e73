package main

import "strings"

// The generator's schemas of types that aren't ours let through what the Go types
// can't hold, or can't decode in any reasonable time. One such object at the API
// server stops every Go client that lists its kind, in all namespaces.
const (
	// decimalExponent is the end of the generator's pattern of a quantity. It lets an
	// exponent be a fraction, such as 1e5.5, which isn't a quantity, and of any size:
	// for 1e-999999999 the parser computes that power of ten.
	decimalExponent = `([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+)))`
	shortExponent   = `([eE](\+|-)?[0-9]{1,2})`
	// rfc3339 is what metav1.Time takes; format date-time lets through lower-case
	// letters and zones of 99 hours.
	rfc3339 = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
)

// tightenTimes restricts every time of a schema to what metav1.Time takes.
func tightenTimes(node any) {
	eachSchema(node, func(schema map[string]any) {
		if schema["format"] == "date-time" {
			schema["pattern"] = rfc3339
		}
	})
}

// tightenTemplate restricts the quantities and the ports of a PodTemplateSpec.
func tightenTemplate(node any) {
	eachSchema(node, func(schema map[string]any) {
		if schema["x-kubernetes-int-or-string"] != true {
			return
		}
		if pattern, isQuantity := schema["pattern"].(string); isQuantity {
			schema["pattern"] = strings.Replace(pattern, decimalExponent, shortExponent, 1)
			return
		}
		schema["minimum"], schema["maximum"] = 0, 65535
	})
}

// eachSchema calls do for every object of the tree, each of which may be a schema.
func eachSchema(node any, do func(map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		do(node)
		for _, value := range node {
			eachSchema(value, do)
		}
	case []any:
		for _, value := range node {
			eachSchema(value, do)
		}
	}
}
