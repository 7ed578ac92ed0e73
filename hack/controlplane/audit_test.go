package controlplane

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheAuditLogTellsWritesFromReadsAndWhoMadeThem(t *testing.T) {
	before := time.Now()
	a, b := shared.APIServers[0], shared.APIServers[1]
	expect(t, 201, a, Admin, http.MethodPost, configMaps, configMap("audited", "1"))
	expect(t, 200, b, Admin, http.MethodPatch, configMaps+"/audited", configMap("audited", "2"))
	expect(t, 200, a, Admin, http.MethodPut, configMaps+"/audited?dryRun=All", configMap("audited", "3"))
	expect(t, 200, b, Admin, http.MethodGet, configMaps+"/audited", nil)
	expect(t, 200, b, Admin, http.MethodGet, configMaps, nil)
	expect(t, 403, a, "guest", http.MethodDelete, configMaps+"/audited", nil)
	expect(t, 200, a, Admin, http.MethodDelete, configMaps+"/audited", nil)
	expect(t, 200, a, Admin, http.MethodDelete, configMaps+"?labelSelector=none=such", nil)

	var got []Write
	eventually(t, "six writes are in the logs", func() bool {
		writes, err := shared.Writes("")
		if err != nil {
			t.Fatal(err)
		}
		got = slices.DeleteFunc(writes, func(w Write) bool {
			return w.Time.Before(before) || w.Resource != "configmaps" || (w.Name != "audited" && w.Verb != "deletecollection")
		})
		return len(got) >= 6
	})
	for i := range got {
		if got[i].UserAgent != "Go-http-client/1.1" {
			t.Errorf("write %d was made by %q, want Go-http-client/1.1", i, got[i].UserAgent)
		}
		got[i].Time, got[i].UserAgent = time.Time{}, ""
	}
	w := Write{Server: "kube-apiserver-0", User: "admin", Resource: "configmaps", Namespace: "default", Name: "audited"}
	create, patch, update, refused, remove, all := w, w, w, w, w, w
	create.Verb, create.Code = "create", 201
	patch.Verb, patch.Code, patch.Server = "patch", 200, "kube-apiserver-1"
	update.Verb, update.Code, update.DryRun = "update", 200, true
	refused.Verb, refused.Code, refused.User = "delete", 403, "guest"
	remove.Verb, remove.Code = "delete", 200
	all.Verb, all.Code, all.Name = "deletecollection", 200, ""
	if want := []Write{create, patch, update, refused, remove, all}; !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestWritesOfOneUser(t *testing.T) {
	writes, err := shared.Writes("system:apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if len(writes) == 0 {
		t.Fatal("the API servers made no writes of their own at their start")
	}
	for _, w := range writes {
		if w.User != "system:apiserver" {
			t.Errorf("a write of %s is among them", w.User)
		}
	}
	if n := CountByKind(writes)["create clusterroles"]; n < 20 {
		t.Errorf("%d cluster roles were created at the start, want at least 20: %v", n, CountByKind(writes))
	}
}

func TestCountByKind(t *testing.T) {
	got := CountByKind([]Write{
		{Verb: "patch", Resource: "pods"}, {Verb: "patch", Resource: "pods"},
		{Verb: "patch", Resource: "podclaims", Subresource: "status"},
	})
	if want := map[string]int{"patch pods": 2, "patch podclaims/status": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadAuditLog(t *testing.T) {
	const entry = `{"verb":"create","user":{"username":"admin"},"impersonatedUser":{"username":"jane"},"objectRef":{"resource":"pods","subresource":"eviction","apiGroup":"policy"},"responseStatus":{"code":201}}` + "\n"
	tests := map[string]struct {
		content string
		want    []Write
		wantErr string
	}{
		"the user is the one who was impersonated": {
			content: entry,
			want:    []Write{{Server: "s", User: "jane", Verb: "create", Group: "policy", Resource: "pods", Subresource: "eviction", Code: 201}},
		},
		"a line that isn't whole yet is left for later": {content: entry[:40]},
		"no entry": {},
		"garbage":  {content: "garbage\n", wantErr: "entry 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := new(auditReader).read(path, "s")
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want an error with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
	if got, err := new(auditReader).read("missing", "s"); got != nil || err != nil {
		t.Errorf("a log that isn't there yet: got %v, %v, want nothing", got, err)
	}
}

func TestWithoutAnAuditLogWritesSaysSo(t *testing.T) {
	cp := ForTest(t, Options{NoAudit: true})
	if _, err := cp.Writes(""); err == nil || !strings.Contains(err.Error(), "Options.NoAudit") {
		t.Errorf("got %v, want an error that names the option", err)
	}
}

func TestTheAuditLogIsReadOnFromWhereItWasRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	entry := `{"verb":"create","objectRef":{"resource":"pods","name":"%s"}}` + "\n"
	var r auditReader
	for i, step := range []struct{ appended, want string }{
		{fmt.Sprintf(entry, "a"), "a"},
		{"", "a"},
		{fmt.Sprintf(entry, "b") + `{"verb":"create","obj`, "a b"},
		{`ectRef":{"resource":"pods","name":"c"}}` + "\n", "a b c"},
	} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(step.appended); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		writes, err := r.read(path, "s")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, w := range writes {
			names = append(names, w.Name)
		}
		if got := strings.Join(names, " "); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}
