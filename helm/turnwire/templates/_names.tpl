{{/*
Helpers named turnwire.<x> take a context made by each file: root (the chart's own context), name (the component)
and values (that component's values).
*/}}

{{- define "turnwire.base" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "turnwire.fullname" -}}
{{- printf "%s-%s" (include "turnwire.base" .root) .name -}}
{{- end -}}

{{- define "turnwire.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "turnwire.labels" -}}
{{ include "turnwire.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "turnwire.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "turnwire.base" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "turnwire.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The port each service listens on. */}}
{{- define "turnwire.port" -}}
{{- get (dict "runtime" "50051" "control" "50052" "executor" "50053") .name -}}
{{- end -}}

{{/* The gRPC service whose health says that the pod may be called. */}}
{{- define "turnwire.readiness" -}}
{{- get (dict
  "runtime" "turnwire.api.runtime.v1.TurnService"
  "control" "turnwire.api.control.v1.ControlService"
  "executor" "turnwire.api.executor.v1.ToolExecutorService") .name -}}
{{- end -}}

{{/* Where the runtime dials another component: the headless name gives every pod to the client's balancer. */}}
{{- define "turnwire.target" -}}
{{- printf "dns:///%s-headless.%s.svc:%s" (include "turnwire.fullname" .) .root.Release.Namespace (include "turnwire.port" .) -}}
{{- end -}}
