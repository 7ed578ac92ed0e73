package history

// O17: every write is guarded, every read is fresh.

import (
	"slices"

	"warmpool.dev/controller/test/faultproxy"
)

// O17 judges each request on the wire by itself, whatever came of it:
//
//   - A delete carries uid and resourceVersion as preconditions. There is no
//     deletecollection and no eviction.
//   - An update carries a resourceVersion in its body. So does a patch; or it is a
//     JSON patch that tests the uid.
//   - A creation has a name of the sender's choice and no generateName; of a Pod, a
//     controller owner with a UID besides.
//   - A list or watch never asks for resourceVersion=0.
//
// Events, and reviews, which store nothing, are free.
func O17(logs ...faultproxy.Log) []Violation {
	v := &verdict{rule: "O17"}
	for _, r := range allRequests(logs) {
		if isEvent(r) || r.IsWrite() && !isStored(r) {
			continue
		}
		if complaint := complain(r); complaint != "" {
			v.inLog(r, "%s: %s", r.Verb, complaint)
		}
	}
	return v.found
}

// complain says what is missing; empty: nothing.
func complain(r *faultproxy.Request) string {
	switch r.Verb {
	case "list", "watch":
		if faultproxy.FromCache(r) {
			return "resourceVersion=0, which may be answered from a cache of any age"
		}
	case "delete":
		if r.Preconditions.UID == nil || r.Preconditions.ResourceVersion == nil {
			return "without the preconditions uid and resourceVersion"
		}
	case "deletecollection":
		return "whatever may be there"
	case "update":
		if r.Meta.ResourceVersion == "" {
			return "without a resourceVersion"
		}
	case "patch":
		if r.Meta.ResourceVersion == "" && !slices.Contains(r.Tests, "/metadata/uid") {
			return "without a resourceVersion, and without a test of the uid"
		}
	case "create":
		return complainOfCreation(r)
	}
	return ""
}

func complainOfCreation(r *faultproxy.Request) string {
	switch {
	case r.Subresource == "eviction":
		return "an eviction"
	case r.Meta.Name == "" || r.Meta.GenerateName != "":
		return "without a name of its sender's choice"
	case r.GroupResource() == Pods && OwnerOf(&r.Meta).UID == "":
		return "without an owner's UID"
	}
	return ""
}
