package pool

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestARefusalIsToldAnewOnlyForAnotherCause(t *testing.T) {
	for _, test := range []struct {
		name         string
		told, answer string
		anew         bool
	}{
		{"the same", `pods "NAME" is forbidden: no`, `pods "runners-x7k2" is forbidden: no`, false},
		{"more of a quota is used",
			`pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=10`,
			`pods "runners-x7k2" is forbidden: exceeded quota: small, requested: pods=1, used: pods=10, limited: pods=10`, false},
		{"more of a quota is used, in another unit",
			`pods "NAME" is forbidden: exceeded quota: small, requested: requests.cpu=100m, used: requests.cpu=1950m, limited: requests.cpu=2`,
			`pods "runners-x7k2" is forbidden: exceeded quota: small, requested: requests.cpu=100m, used: requests.cpu=2, limited: requests.cpu=2`, false},
		{"another quota",
			`pods "NAME" is forbidden: exceeded quota: small-1, requested: pods=1, used: pods=3, limited: pods=3`,
			`pods "runners-x7k2" is forbidden: exceeded quota: small-2, requested: pods=1, used: pods=3, limited: pods=3`, true},
		{"another resource of a quota",
			`pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`,
			`pods "runners-x7k2" is forbidden: exceeded quota: small, requested: requests.cpu=1, used: requests.cpu=3, limited: requests.cpu=3`, true},
		{"a webhook numbers its answers",
			`admission webhook "w.example.com" denied the request: no (request 0f3d1f5c-9a1e-4d5e-8f6a-2b7c9d0e1f2a)`,
			`admission webhook "w.example.com" denied the request: no (request 1a2b3c4d-9a1e-4d5e-8f6a-2b7c9d0e1f2b)`, false},
		{"another container is too large",
			`pods "NAME" is forbidden: maximum cpu usage per Container is 1, but limit is 2`,
			`pods "runners-x7k2" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi`, true},
		{"a webhook instead of a quota",
			`pods "NAME" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`,
			`admission webhook "w.example.com" denied the request: no`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := &metav1.Condition{Status: metav1.ConditionTrue, Message: test.told}
			if got := refusalMessage(told, errors.New(test.answer), "runners-x7k2"); (got != test.told) != test.anew {
				t.Errorf("told anew: %t, want %t\n%s", got != test.told, test.anew, got)
			}
		})
	}
	const first = `exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`
	for name, told := range map[string]*metav1.Condition{
		"nothing was told yet": nil,
		"it was over":          {Status: metav1.ConditionFalse, Message: `exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`},
	} {
		if got := refusalMessage(told, errors.New(first), "runners-x7k2"); got != first {
			t.Errorf("%s: got %q, want %q", name, got, first)
		}
	}
}
